// tutti plan: decides for people how a model is spread.

#include "base/error.h"
#include "cli/command.h"
#include "cli/plan_joint.h"

#include <memory>

namespace tutti::cli {

Command plan_command() {
    Command command;
    command.name = "plan";
    command.summary = "choose how a model is spread over a cluster";
    command.usage = "MODEL --cluster FILE --global-batch N --sequence N [options]";
    command.about = "Chooses replicas, pipeline ranks, tensor width, micro-batch, cuts, schedule, recomputation, ZeRO "
                    "level and who works where, all together, by predicted step time; shows the best plans beside "
                    "those that people would set by hand.";
    command.examples = "tutti plan llama3-70b --cluster 512-h100.toml --global-batch 1024 --sequence 8192\n"
                       "tutti plan gpt3-175b --cluster 1024-a100.toml --global-batch 1536 --sequence 2048 --output "
                       "plan.json --report plan.html";
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto model = add_value(app, "model", "MODEL", "Hugging Face folder (config.json is enough) or built-in name");
        auto flags = std::make_shared<JointFlags>(add_joint_flags(app));
        return [model, flags] {
            const auto name = text_of(model);
            if (!name)
                fail("plan what? as in tutti plan gpt2-xl --cluster cluster.toml --global-batch 64 --sequence 1024");
            return plan_joint(*name, *flags);
        };
    };
    return command;
}

} // namespace tutti::cli
