#include "train/metrics.h"

#include "base/error.h"
#include "base/system_error.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <sstream>

namespace tutti::train {
namespace {

// The lines of an earlier run up to the step after which this one goes on. Steps are counted from 1, as everywhere. A
// line cut off by a crash is dropped.
std::string lines_before(const fs::path& path, std::int64_t first_step) {
    std::istringstream lines(read_text(path));
    std::string kept, line;
    while (std::getline(lines, line)) {
        const auto json = nlohmann::json::parse(line, nullptr, false);
        if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
        if (json["step"].get<std::int64_t>() <= first_step) kept += line + '\n';
    }
    return kept;
}

} // namespace

Metrics::Metrics(const run::RunConfig& config, std::int64_t first_step, run::TrainListener& listener)
    : listener_(listener), path_(config.metrics) {
    if (!config.output.empty() && config.tensorboard) tensorboard_.emplace(fs::path(config.output) / "tensorboard");
    if (path_.empty()) return;
    if (is_there(path_) && !is_file(path_)) // a pipe would wait for a reader
        fail("cannot write the metrics to {}: it is not a regular file", path_.string());
    // What an earlier run wrote is replaced as a whole: whenever this one dies, the lines are there.
    if (first_step > 0 && is_there(path_)) write_text_atomically(path_, lines_before(path_, first_step));
    file_.reset(std::fopen(path_.c_str(), first_step > 0 ? "a" : "w"));
    if (!file_) fail_system(errno, "cannot write the metrics to {}", path_.string());
}

void Metrics::line(const std::string& text) {
    if (!file_) return;
    if (std::fputs(text.c_str(), file_.get()) >= 0 && std::fputc('\n', file_.get()) >= 0 &&
        std::fflush(file_.get()) == 0)
        return;
    const std::string reason = std::strerror(errno);
    file_.reset();
    listener_.warning(fmt::format("cannot write the metrics to {}: {}; the run goes on, and its steps are not recorded "
                                  "there any more",
                                  path_.string(), reason));
}

void Metrics::flush_tensorboard() {
    try {
        tensorboard_->flush();
    } catch (const WorldError& error) {
        tensorboard_.reset();
        listener_.warning(fmt::format("{}; the run goes on without it", error.what()));
    }
}

void Metrics::step(const run::StepReport& report) {
    nlohmann::ordered_json json;
    const std::int64_t number = report.step + 1;
    json["step"] = number;
    json["loss"] = report.loss;
    json["grad_norm"] = report.gradient_norm;
    json["lr"] = report.learning_rate;
    json["tokens_per_second"] = report.tokens_per_second;
    json["tokens"] = report.tokens;
    json["milliseconds"] = report.duration.count * 1e3;
    json["memory_bytes"] = report.memory.count;
    if (report.skipped) json["skipped"] = true;
    line(json.dump());
    if (!tensorboard_) return;
    tensorboard_->add_scalar("train/loss", number, report.loss);
    tensorboard_->add_scalar("train/grad_norm", number, report.gradient_norm);
    tensorboard_->add_scalar("train/lr", number, report.learning_rate);
    tensorboard_->add_scalar("train/tokens_per_second", number, report.tokens_per_second);
    flush_tensorboard();
}

void Metrics::comparison(std::int64_t step, const run::PredictionCheck& comparison) {
    line(nlohmann::ordered_json{{"step", step},
                                {"predicted_milliseconds", comparison.predicted.count * 1e3},
                                {"measured_milliseconds", comparison.measured.count * 1e3},
                                {"predicted_memory_bytes", comparison.predicted_memory.count},
                                {"measured_memory_bytes", comparison.memory.count}}
             .dump());
}

void Metrics::evaluation(std::int64_t step, double loss) {
    line(nlohmann::ordered_json{{"step", step}, {"eval_loss", loss}}.dump());
    if (!tensorboard_) return;
    tensorboard_->add_scalar("eval/loss", step, loss);
    flush_tensorboard();
}

} // namespace tutti::train
