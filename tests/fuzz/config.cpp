// A config.json: the model is built, and once more with other layers.
#include "formats/json.h"
#include "fuzz.h"
#include "models/depth.h"
#include "models/model.h"

using namespace tutti;
using namespace tutti::formats;
using namespace tutti::models;

namespace {

// A graph grows with its layers, and 10,000 of them are allowed: this takes time, and is no hang.
bool has_many_layers(const nlohmann::json& config) {
    if (!config.is_object()) return false;
    for (const auto& [key, value] : config.items())
        if (key.find("layer") != std::string::npos && value.is_number_integer() && value > 8 && value <= 10'000)
            return true;
    return false;
}

} // namespace

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    fuzz::accepts([&] {
        nlohmann::json config = parse_json(fuzz::text_of(data, size), "config.json");
        if (has_many_layers(config)) return;
        const ModelSource source(std::move(config), "config.json");
        const Model model = source.build({2, 4, DType::bfloat16});
        TUTTI_CHECK(model.graph.stored().size() == model.initialisation.size(), "{} and {}",
                    model.graph.stored().size(), model.initialisation.size());
        for (const StoredTensor& tensor : model.graph.stored())
            TUTTI_CHECK(tensor.type.shape.elements() > 0, "{}", tensor.name);
        if (layers_of(source) > 1) with_layers(source, 1).build({1, 1, DType::float32});
    });
    return 0;
}
