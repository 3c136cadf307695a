// A model as text, for comparing two builds: every node with its attributes, inputs and source.
#pragma once

#include "models/model.h"
#include "support/paths.h"

#include <string>

namespace tutti::test {

inline std::string text_of(const models::Model& model) {
    std::string text;
    for (const StoredTensor& tensor : model.graph.stored()) text += tensor.name + " " + to_string(tensor.type) + "\n";
    for (const Node& node : model.graph.nodes()) {
        text += std::string(node.op->name) + " " + node.source + " {";
        for (const auto& [name, value] : node.attributes.entries()) text += name + "=" + to_string(value) + " ";
        text += "}";
        for (ValueId input : node.inputs) text += " " + std::to_string(index(input));
        for (ValueId output : node.outputs) text += " -> " + to_string(model.graph.type(output));
        text += "\n";
    }
    return text;
}

inline nlohmann::json reference_config(const std::string& name) {
    return nlohmann::json::parse(read_text(test_data() / "references" / name / "config.json"));
}

inline models::ModelSource source_of(nlohmann::json config) {
    return models::ModelSource(std::move(config), "config.json");
}

} // namespace tutti::test
