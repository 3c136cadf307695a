// tutti plan: decides for people how a model is spread.

#include "base/error.h"
#include "cli/command.h"
#include "cli/plan_intra_op.h"

#include <memory>

namespace tutti::cli {
namespace {

struct Flags {
    CLI::Option *model = nullptr, *intra_op = nullptr;
    IntraOpFlags within{};
};

int run(const Flags& flags) {
    const auto model = text_of(flags.model);
    if (!model) fail("plan what? as in tutti plan gpt2 --intra-op --mesh tensor=8 --micro-batch 1");
    if (!is_set(flags.intra_op))
        fail("only the strategies within operators can be planned: tutti plan {} --intra-op", *model);
    return plan_intra_op(*model, flags.within);
}

} // namespace

Command plan_command() {
    Command command;
    command.name = "plan";
    command.summary = "choose how the operators of a model are split over ranks";
    command.usage = "MODEL --intra-op --mesh tensor=N [options]";
    command.about =
        "Chooses for every operator how the ranks of the tensor axis share it: with the least memory that is "
        "there more than once, and among those the fastest; or faster ones for some more of it.";
    command.examples =
        "tutti plan gpt2 --intra-op --mesh tensor=8 --micro-batch 1\n"
        "tutti plan gpt2 --intra-op --mesh tensor=8 --tensor-mesh 2x4 --micro-batch 8 --picture layer.html";
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto flags = std::make_shared<Flags>();
        flags->model = add_value(app, "model", "MODEL", "Hugging Face folder or built-in name");
        flags->intra_op = add_flag(app, "--intra-op", "the strategies of operators on the tensor axis");
        flags->within = add_intra_op_flags(app);
        return [flags] { return run(*flags); };
    };
    return command;
}

} // namespace tutti::cli
