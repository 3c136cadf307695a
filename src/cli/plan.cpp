// tutti plan: decides for people how a model is spread.

#include "base/error.h"
#include "cli/command.h"
#include "cli/plan_intra_op.h"
#include "cli/plan_joint.h"

#include <memory>

namespace tutti::cli {

Command plan_command() {
    Command command;
    command.name = "plan";
    command.summary = "choose how a model is spread over a cluster";
    command.usage = "MODEL --cluster FILE --global-batch N --sequence N [options]\n"
                    "       tutti plan MODEL --intra-op --mesh tensor=N [options]";
    command.about = "Chooses replicas, pipeline ranks, tensor width, micro-batch, cuts, schedule, recomputation, ZeRO "
                    "level and who works where, all together, by predicted step time; shows the best plans beside "
                    "those that people would set by hand. Ctrl-C ends the search with the best plan so far. With "
                    "--intra-op: only how the ranks of the tensor axis share "
                    "every operator, with the least memory that is there more than once, or faster for more of it.";
    command.examples =
        "tutti plan llama3-70b --cluster 512-h100.toml --global-batch 1024 --sequence 8192\n"
        "tutti plan gpt2-xl --cluster cluster.toml --global-batch 512 --sequence 1024 --report plan.html\n"
        "tutti plan gpt2 --intra-op --mesh tensor=8 --micro-batch 8 --picture layer.html";
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto model = add_value(app, "model", "MODEL", "Hugging Face folder (config.json is enough) or built-in name");
        const JointFlags joint = add_joint_flags(app);
        auto* const intra_op = add_flag(app, "--intra-op", "only the strategies of operators on the tensor axis");
        const IntraOpFlags within = add_intra_op_flags(app, joint);
        return [model, joint, intra_op, within] {
            const auto name = text_of(model);
            if (!name)
                fail("plan what? as in tutti plan gpt2-xl --cluster cluster.toml --global-batch 64 --sequence 1024");
            return is_set(intra_op) ? plan_intra_op(*name, within) : plan_joint(*name, joint);
        };
    };
    return command;
}

} // namespace tutti::cli
