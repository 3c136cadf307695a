// Builder: a small vocabulary over Graph in which the families describe their blocks. Layers are named as their
// modules are in Transformers, which gives both the parameters' names and the nodes' sources.
#pragma once

#include "models/model.h"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::models {

struct AttentionOptions {
    bool causal = true;
    double scale = 1;
    double dropout = 0;
    std::int64_t window = 0;       // keys that a query sees at most, its own among them; 0: all
    double soft_cap = 0;           // scores are bent to stay below it; 0: they are not
    ValueId bias = ValueId::none;  // learned, added to the scores; broadcasts to [b,h,t,s]
    ValueId sinks = ValueId::none; // learned, one score per head that takes part in the sums without a value, [h]
};

// Tables of cosines and sines; `cos` is none where nothing is rotated.
struct RotaryTables {
    ValueId cos = ValueId::none;
    ValueId sin = ValueId::none;
};

class Builder {
  public:
    explicit Builder(const ModelShape& shape);

    const ModelShape& shape() const { return shape_; }
    ValueId input_ids() const { return input_ids_; }
    std::int64_t width(ValueId x) const { return graph_.shape(x).back(); }

    // The deviation of the weights of every layer that follows.
    void set_deviation(double deviation) { deviation_ = deviation; }

    // A stored tensor as a parameter. The same name gives the same value: that is a tie.
    ValueId parameter(const std::string& name, const Shape& shape, const Initialisation& how);
    // Stored [in, out], seen as [out, in]: GPT-2's Conv1D.
    ValueId conv1d_parameter(const std::string& name, std::int64_t in, std::int64_t out, const Initialisation& how);

    // Layers with parameters NAME.weight and NAME.bias.
    ValueId linear(ValueId x, const std::string& name, std::int64_t out, bool bias = true);
    ValueId conv1d(ValueId x, const std::string& name, std::int64_t out, double deviation);
    ValueId layer_norm(ValueId x, const std::string& name, double eps, bool affine = true);
    ValueId rms_norm(ValueId x, const std::string& name, double eps, bool unit_offset = false);
    ValueId embedding(ValueId ids, const std::string& name, std::int64_t rows, std::int64_t columns,
                      std::int64_t padding_row = -1);
    // A linear layer whose parameters have other names: output heads that share the embedding.
    ValueId linear_with(ValueId x, ValueId weight, ValueId bias, const std::string& source);

    // Layers without parameters.
    ValueId activation(ValueId x, std::string_view name, const std::string& source);
    ValueId dropout(ValueId x, double p, const std::string& source); // x itself where p is 0
    ValueId add(ValueId a, ValueId b, const std::string& source);
    ValueId multiply(ValueId a, ValueId b, const std::string& source);
    ValueId times(ValueId x, double factor, const std::string& source); // the factor rounded to x's element type
    // Positions go on over the borders of documents: scores depend on distances, and those within a document stay.
    RotaryTables rotary_tables(const std::vector<double>& frequencies, double scale, const std::string& source);
    ValueId rotary(ValueId heads, const RotaryTables& tables, const std::string& source);

    // [b,t,heads*d] and [b,t,heads,d]: views of one another.
    ValueId split_heads(ValueId x, std::int64_t heads, const std::string& source);
    ValueId merge_heads(ValueId x, const std::string& source);
    // Equal parts of the last dimension, as views.
    std::vector<ValueId> split(ValueId x, std::int64_t parts, const std::string& source);
    // q [b,t,h,d], k and v [b,t,g,d] -> [b,t,h*d]. Where the shape has documents, within each of them.
    ValueId attention(ValueId q, ValueId k, ValueId v, const AttentionOptions& options, const std::string& source);

    // Integers: a filled tensor, and start, start + 1, ... over the sequence, or over each of its documents.
    ValueId fill_ids(std::int64_t value, const Shape& shape, const std::string& source);
    ValueId positions(std::int64_t start, const std::string& source);
    // RoBERTa's: padding tokens stay at `padding`, the others count on from there.
    ValueId positions_without_padding(std::int64_t padding, const std::string& source);

    // Adds the loss and the outputs.
    Model finish(ModelFacts facts, ValueId logits);

  private:
    std::int32_t stored(const std::string& name, const Shape& shape, const Initialisation& how);
    ValueId emit(std::string_view op, std::vector<ValueId> inputs, Attributes attributes, const std::string& source) {
        return graph_.add(op, std::move(inputs), std::move(attributes), source);
    }
    ValueId reshape(ValueId x, std::vector<std::int64_t> shape, const std::string& source);

    ModelShape shape_;
    Graph graph_;
    ValueId input_ids_, targets_;
    ValueId documents_ = ValueId::none;
    double deviation_ = 0.02;
    std::map<std::string, ValueId> parameters_;
    std::vector<Initialisation> initialisation_;
};

// The names `activation` knows, as Transformers spells them.
std::span<const std::string_view> activation_names();

} // namespace tutti::models
