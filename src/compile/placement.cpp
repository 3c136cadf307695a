#include "compile/placement.h"

#include "base/checked.h"
#include "compile/buffers.h"
#include "compile/direct_gradients.h"
#include "compile/graphs/stages.h"
#include "memory/liveness.h"
#include "program/packing.h"

#include <map>

namespace tutti::compile {
namespace {

class Placer {
  public:
    Placer(const Graph& graph, const StoredPlaces& places, const PlacementOptions& options)
        : graph_(graph), options_(options), places_(places), order_(order_nodes(graph, options.split_backward)),
          direct_(direct_gradients(graph, order_, places_, options.gradients, options.cleared)),
          joins_(find_joins(graph, order_.parts)),
          buffers_(assign_buffers(graph, order_, direct_, joins_, options.offloaded)) {}

    Placement run() {
        result_.weights = weight_windows(graph_, order_, places_, options_.gathered, buffers_.completed);
        result_.gradients = gradient_windows(graph_, order_, places_, options_.scattered);
        place();
        assign_addresses();
        address_messages();
        result_.parts = order_.parts;
        result_.order = order_.order;
        result_.direct = direct_;
        result_.joined = joins_.joined;
        result_.completed = buffers_.completed;
        return std::move(result_);
    }

  private:
    const Node& node(std::size_t i) const { return graph_.nodes()[i]; }

    static Region region_of(Part first) {
        switch (first) {
        case Part::forward: return Region::stash;
        case Part::recompute: return Region::recomputed;
        default: return Region::deferred;
        }
    }

    void place() {
        result_.staging.assign(graph_.nodes().size(), -1);
        std::array<std::vector<memory::LiveBuffer>, part_count> transient;
        std::array<std::vector<Buffer*>, part_count> owners;
        std::array<std::int32_t, part_count> end{};
        for (std::size_t part = 0; part < part_count; ++part) end[part] = order_.end_of(static_cast<Part>(part));
        auto append = [](Bytes& region, Buffer& buffer) {
            buffer.offset = region.count;
            region.count = round_up(region.count + buffer.size.count, memory::buffer_alignment);
        };
        result_.pieces.resize(buffers_.pieces);
        for (Buffer& buffer : buffers_.all) {
            const auto part = static_cast<std::size_t>(buffer.first_part);
            if (buffer.first_part == Part::setup) {
                buffer.region = Region::constants;
                append(result_.constants, buffer);
                buffer.offset += options_.constants;
            } else if (buffer.piece >= 0) {
                buffer.region = Region::offloaded;
                append(result_.pieces[static_cast<std::size_t>(buffer.piece)], buffer);
            } else if (buffer.first_part != buffer.last_part || buffer.sent) {
                buffer.region = buffer.first_part != buffer.last_part ? region_of(buffer.first_part) : Region::outbox;
                append(result_.slots[slotted(buffer.region)], buffer);
            } else {
                transient[part].push_back({buffer.size, buffer.first, buffer.kept ? end[part] : buffer.last});
                owners[part].push_back(&buffer);
            }
        }
        for (std::size_t part = 0; part < part_count; ++part) {
            const std::vector<Window*> windows = windows_of(part);
            const std::vector<std::size_t> staged = staged_in(static_cast<Part>(part));
            for (const Window* window : windows)
                transient[part].push_back({window_bytes(*window, part), window->first, window->last});
            for (std::size_t i : staged)
                transient[part].push_back({staging_of(i), order_.position[i], buffers_.completed[i]});
            result_.transient[part] = memory::place_buffers(transient[part]);
            auto placed = transient[part].begin();
            for (Buffer* owner : owners[part]) owner->offset = (placed++)->offset;
            for (Window* window : windows) window->offset = (placed++)->offset;
            for (std::size_t i : staged) result_.staging[i] = (placed++)->offset;
        }
    }

    std::vector<Window*> windows_of(std::size_t part) {
        std::vector<Window*> windows;
        for (Window& window : result_.weights[part]) windows.push_back(&window);
        for (Window& window : result_.gradients[part]) windows.push_back(&window);
        return windows;
    }

    Bytes window_bytes(const Window& window, std::size_t part) const {
        const std::vector<Window>& weights = result_.weights[part];
        const bool is_weights = &window >= weights.data() && &window < weights.data() + weights.size();
        return {places_.elements_of(window.chunk) * size_of(is_weights ? options_.weights : options_.gradients)};
    }

    Bytes staging_of(std::size_t i) const {
        return packing_bytes(*node(i).op->collective, node(i).attributes, graph_.type(node(i).inputs[0]),
                             graph_.type(node(i).outputs[0]));
    }
    std::vector<std::size_t> staged_in(Part part) const {
        std::vector<std::size_t> nodes;
        for (std::size_t i : order_.order)
            if (order_.parts[i] == part && node(i).op->collective && staging_of(i).count > 0) nodes.push_back(i);
        return nodes;
    }

    // Tokens lie in the batch, what comes from a neighbour in its slots.
    Address address_of_input(const Value& input) {
        auto take = [&](Region region) {
            Bytes& end = result_.slots[slotted(region)];
            const Address address{region, 0, end.count};
            end.count = round_up(end.count + input.type.bytes().count, memory::buffer_alignment);
            return address;
        };
        if (input.name.starts_with(sharding::stage_input)) return take(Region::received);
        if (input.name.starts_with(sharding::stage_output_gradient)) return take(Region::returned);
        return {Region::batch, 0, options_.batch.at(input.name)};
    }

    void assign_addresses() {
        std::map<std::size_t, Address> inputs;
        for (ValueId input : graph_.inputs()) inputs[index(input)] = address_of_input(graph_.value(input));
        result_.addresses.resize(graph_.values().size());
        for (const Value& value : graph_.values()) result_.strides.push_back(value.layout.strides);
        for (std::size_t v = 0; v < graph_.values().size(); ++v) {
            const Value& value = graph_.values()[v];
            const std::size_t root = index(value.storage);
            const std::int64_t element = size_of(value.type.dtype), within = value.layout.offset * element;
            Address& address = result_.addresses[v];
            if (const Parameter* parameter = graph_.parameter_of(value.storage)) {
                const memory::ChunkTensor& place = places_.of(*parameter);
                address = {Region::weights, place.chunk, place.offset * element + within};
            } else if (const auto input = inputs.find(root); input != inputs.end()) {
                address = input->second;
                address.offset += within;
            } else if (const Buffer* buffer = buffers_.find(root)) {
                address = {buffer->region, std::max(buffer->piece, 0), buffer->offset + within};
            }
        }
        for (const auto& [value, inside] : joins_.inside) {
            result_.addresses[index(value)].offset += inside.layout.offset * size_of(graph_.type(value).dtype);
            result_.strides[index(value)] = inside.layout.strides;
        }
    }

    // Slots of the forward outlive the message while training, since the gradient comes back only after it; all else
    // that is sent lies in the outbox, or is copied there.
    void address_messages() {
        for (std::size_t o = 0; o < graph_.outputs().size(); ++o) {
            const Output& output = graph_.outputs()[o];
            if (!is_message(output)) continue;
            const Address& at = result_.addresses[index(output.value)];
            const bool lasts =
                at.region == Region::outbox || (options_.trains && is_forward_message(output) &&
                                                (at.region == Region::stash || at.region == Region::received));
            const TensorType& type = graph_.type(output.value);
            SentValue sent{.output = o, .address = at};
            if (!lasts || !is_dense(type.shape, result_.strides[index(output.value)])) {
                Bytes& end = result_.slots[slotted(Region::outbox)];
                sent.address = {Region::outbox, 0, end.count};
                sent.copied = true;
                end.count = round_up(end.count + type.bytes().count, memory::buffer_alignment);
            }
            result_.sent.push_back(sent);
        }
    }

    const Graph& graph_;
    const PlacementOptions& options_;
    const StoredPlaces& places_;
    NodeOrder order_;
    std::vector<bool> direct_;
    Joins joins_;
    Buffers buffers_;
    Placement result_;
};

} // namespace

Placement place_values(const Graph& graph, const StoredPlaces& places, const PlacementOptions& options) {
    return Placer(graph, places, options).run();
}

} // namespace tutti::compile
