// tutti plan: chooses how a model is trained on a cluster.

#include "base/error.h"
#include "cli/command.h"
#include "cli/plan_intra_op.h"
#include "cli/plan_joint.h"
#include "costs/device_kind.h"

namespace tutti::cli {

namespace {

template <class Presets>
terminal::Definition names_of(const char* what, const Presets& presets) {
    terminal::Definition definition{what, {}};
    for (const auto& one : presets) definition.words.push_back(one.name + ",");
    definition.words.back().pop_back();
    return definition;
}

// What a cluster.toml may name, and the words of tables.
std::string notes() {
    const terminal::Definition presets[] = {names_of("devices", costs::device_presets()),
                                            names_of("links", costs::link_presets())};
    const std::pair<const char*, const char*> terms[] = {
        {"exposed", "share of a step that waits for collectives, messages, gradients or copies"},
        {"memory, left", "of the rank that has least left"},
        {"kept free", "memory for libraries and their workspace"},
        {"x2", "two stages on every rank"},
        {"K=4", "at most four micro-batches in flight"},
        {"norms whole", "not split by sequence over the tensor ranks"},
        {"strategies 3 of the list", "operators split as --intra-op would, the third way found; plan.json says how"},
        {"in halves", "micro-batch halves (sub-pipelining): one computes while the other's collectives run"},
        {"offloaded", "model data beyond the devices' memory is offloaded to host memory"}};
    std::vector<terminal::Definition> words;
    for (const auto& [term, meaning] : terms) words.push_back({term, terminal::split(meaning, ' ')});
    return models_note() + note("Names in a cluster.toml", presets) + note("Words of the tables", words);
}

} // namespace

Command plan_command() {
    Command command;
    command.name = "plan";
    command.summary = "choose how a model is trained on a cluster: data, pipeline and tensor parallelism, ZeRO, memory";
    command.usage = "MODEL --cluster FILE --global-batch N [options]\n"
                    "       tutti plan MODEL --cluster FILE --global-batch N --what-if WHAT [options]\n"
                    "       tutti plan MODEL --cluster FILE --evaluate plan.json [options]\n"
                    "       tutti plan MODEL --intra-op --mesh tensor=N [options]";
    command.about = "Chooses data, pipeline and tensor parallelism, micro-batch, cuts into stages, schedule, "
                    "activation recomputation (activation checkpointing), ZeRO level (3 is FSDP), offloading and the "
                    "device of every rank, all together, by predicted step time; shows the best plans beside those "
                    "that people would set by hand. Ctrl-C ends the search with the best plan so far. With "
                    "--intra-op: only how the ranks of the tensor axis share "
                    "every operator, with the least memory once it is compiled, or faster for more of it.";
    command.notes = notes();
    command.examples =
        "tutti plan llama3-70b --cluster 512-h100.toml --global-batch 1024 --sequence 8192\n"
        "tutti plan gpt2-xl --cluster cluster.toml --global-batch 512 --sequence 1024 --report plan.html\n"
        "tutti plan gpt2 --intra-op --mesh tensor=8 --micro-batch 8 --picture layer.html";
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto model = add_value(app, "model", "MODEL", "Hugging Face folder (config.json is enough) or built-in name");
        const PlanOptions options(app);
        return [model, options] {
            const PlanMode mode = options.mode();
            const auto name = text_of(model);
            if (!name)
                fail("plan what? as in tutti plan gpt2-xl --cluster cluster.toml --global-batch 64 --sequence 1024");
            return mode == PlanMode::intra_op ? plan_intra_op(*name, options) : plan_joint(*name, options, mode);
        };
    };
    return command;
}

} // namespace tutti::cli
