#include "models/huggingface/rope.h"

#include "base/counted.h"
#include "base/error.h"
#include "formats/json.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

namespace tutti::models::huggingface {
namespace {

using nlohmann::json;

constexpr std::int64_t largest_rotation = 65536;

// The settings object under whichever name it stands, read with errors that name "rope_scaling.factor".
class Settings {
  public:
    Settings(const Config& config, std::string_view key) : config_(&config), key_(key) {
        const json& value = config.value(key);
        if (value.is_null()) return;
        if (!value.is_object()) config.reject(key, "it must be an object or null");
        values_ = &value;
    }

    const std::string& key() const { return key_; }
    const json* find(const std::string& name) const {
        if (!values_) return nullptr;
        const auto at = values_->find(name);
        return at == values_->end() || at->is_null() ? nullptr : &*at;
    }
    [[noreturn]] void reject(const std::string& name, const json& value, std::string_view expectation) const {
        config_->reject(fmt::format("{}.{}", key_, name), value, expectation);
    }
    double real(const std::string& name, double otherwise) const {
        const json* value = find(name);
        if (!value) return otherwise;
        if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0)
            reject(name, *value, "it must be a number above 0");
        return value->get<double>();
    }
    double required(const std::string& name) const {
        if (!find(name)) fail("{}: \"{}\" holds no \"{}\", which this rope_type needs", config_->where(), key_, name);
        return real(name, 0);
    }
    std::string text(const std::string& name, const std::string& otherwise) const {
        const json* value = find(name);
        if (!value) return otherwise;
        if (!value->is_string()) reject(name, *value, "it must be a string");
        return value->get<std::string>();
    }
    bool flag(const std::string& name, bool otherwise) const {
        const json* value = find(name);
        if (!value) return otherwise;
        if (!value->is_boolean()) reject(name, *value, "it must be true or false");
        return value->get<bool>();
    }

  private:
    const Config* config_;
    std::string key_;
    const json* values_ = nullptr;
};

// 1 / theta^(2i/size), in float32 step by step as the models were trained.
std::vector<float> inverse_frequencies(double theta, std::int64_t size) {
    std::vector<float> frequencies;
    for (std::int64_t i = 0; i < size; i += 2) {
        const float exponent = static_cast<float>(i) / static_cast<float>(size);
        frequencies.push_back(1.0f / std::pow(static_cast<float>(theta), exponent));
    }
    return frequencies;
}

// Llama 3: long wavelengths are stretched by the factor, short ones kept, those between are blended.
void scale_llama3(std::vector<float>& frequencies, const Settings& settings, double original) {
    const auto factor = static_cast<float>(settings.required("factor"));
    const double low = settings.required("low_freq_factor"), high = settings.required("high_freq_factor");
    if (high <= low) settings.reject("high_freq_factor", high, "it must be above low_freq_factor");
    const auto longest = static_cast<float>(original / low), shortest = static_cast<float>(original / high);
    for (float& frequency : frequencies) {
        const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
        if (wavelength > longest) {
            frequency /= factor;
        } else if (wavelength >= shortest) {
            const float smooth =
                (static_cast<float>(original) / wavelength - static_cast<float>(low)) / static_cast<float>(high - low);
            frequency = (1 - smooth) * frequency / factor + smooth * frequency;
        }
    }
}

// YaRN (Peng et al., 2023): pairs that turn more than beta_fast times over the original length keep their frequency,
// those below beta_slow are interpolated, a ramp lies between. Returns the factor of cosines and sines.
double scale_yarn(std::vector<float>& frequencies, const Settings& settings, double theta, std::int64_t size,
                  double original, double longest) {
    const double factor = settings.find("factor") ? settings.required("factor") : longest / original;
    auto boundary = [&](double rotations) {
        return static_cast<double>(size) * std::log(original / (rotations * 2 * std::numbers::pi)) /
               (2 * std::log(theta));
    };
    double low = boundary(settings.real("beta_fast", 32)), high = boundary(settings.real("beta_slow", 1));
    if (settings.flag("truncate", true)) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(size - 1));
    if (low == high) high += 0.001;
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const float at = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
        const float kept = 1 - std::clamp(at, 0.0f, 1.0f);
        const float interpolated = 1.0f / (static_cast<float>(factor) * (1.0f / frequencies[i]));
        frequencies[i] = interpolated * (1 - kept) + frequencies[i] * kept;
    }
    auto magnitude = [&](double scale) { return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0; };
    if (settings.find("attention_factor")) return settings.required("attention_factor");
    if (settings.find("mscale") && settings.find("mscale_all_dim"))
        return magnitude(settings.required("mscale")) / magnitude(settings.required("mscale_all_dim"));
    return magnitude(1);
}

// A value that may stand in the settings or beside them; where it stands in both, they must agree.
double read_both(const Config& config, const Settings& settings, const std::string& name) {
    if (!settings.find(name)) return config.real(name);
    const double inside = settings.required(name);
    if (config.given(name) && config.real(name) != inside)
        config.reject(name, fmt::format("\"{}.{}\" is {}", settings.key(), name, inside));
    return inside;
}

} // namespace

Keys partial_rope_keys(double fraction, const std::string& fraction_also, const std::string& theta_also) {
    const std::vector<std::string> members = {"rope_type",
                                              "type",
                                              "rope_theta",
                                              "partial_rotary_factor",
                                              "original_max_position_embeddings",
                                              "factor",
                                              "truncate",
                                              "attention_factor",
                                              "beta_fast",
                                              "beta_slow",
                                              "low_freq_factor",
                                              "mscale",
                                              "mscale_all_dim",
                                              "high_freq_factor"};
    return {{"rope_parameters", Kind::free, {}, {}, members},
            {"rope_scaling", Kind::free, {}, {}, members},
            {"original_max_position_embeddings", Kind::optional_size},
            {"rope_theta", Kind::real, 10000.0, theta_also},
            {"partial_rotary_factor", Kind::real, fraction, fraction_also}};
}

Keys rope_keys() { return partial_rope_keys(1); }

Rope read_rope(const Config& config, std::int64_t head_size) {
    const char* key =
        config.given("rope_scaling") && !config.value("rope_scaling").empty() ? "rope_scaling" : "rope_parameters";
    const Settings settings(config, key);
    const json& values = config.value(key);
    if (values.is_object())
        for (const auto& [name, value] : values.items())
            if (value.is_object()) settings.reject(name, value, "a rope of its own per kind of layer is not supported");

    const double theta = read_both(config, settings, "rope_theta");
    if (theta <= 0) config.reject("rope_theta", "it must be above 0");
    const double fraction = read_both(config, settings, "partial_rotary_factor");
    if (fraction > 1) config.reject("partial_rotary_factor", fraction, "it must be at most 1");
    const auto size = static_cast<std::int64_t>(static_cast<double>(head_size) * fraction);
    if (size % 2 != 0 || size > largest_rotation)
        fail("{}: {} of each head's {} elements would be rotated, but that must be an even number up to {}",
             config.where(), size, head_size, largest_rotation);

    Rope rope;
    std::vector<float> frequencies = inverse_frequencies(theta, size);
    const auto longest = static_cast<double>(config.integer("max_position_embeddings"));
    const double original = config.given("original_max_position_embeddings")
                                ? config.real("original_max_position_embeddings")
                                : settings.real("original_max_position_embeddings", longest);
    const std::string type = settings.text("rope_type", settings.text("type", "default"));
    if (type == "linear") {
        const auto factor = static_cast<float>(settings.required("factor"));
        for (float& frequency : frequencies) frequency /= factor;
    } else if (type == "llama3") {
        scale_llama3(frequencies, settings, original);
    } else if (type == "yarn") {
        rope.scale = scale_yarn(frequencies, settings, theta, size, original, longest);
    } else if (type == "dynamic") {
        rope.limit = config.integer("max_position_embeddings");
    } else if (type != "default") {
        settings.reject(settings.find("rope_type") ? "rope_type" : "type", type,
                        "it must be default, linear, dynamic, llama3 or yarn");
    }
    rope.frequencies.assign(frequencies.begin(), frequencies.end());
    return rope;
}

RotaryTables rotary_tables(Builder& builder, const Config& config, const Rope& rope, const std::string& source) {
    const std::int64_t sequence = builder.shape().sequence;
    if (rope.limit > 0 && sequence > rope.limit)
        config.reject(
            "max_position_embeddings",
            fmt::format("with a dynamic rope_type sequences of {} are not supported", counted(sequence, "token")));
    return builder.rotary_tables(rope.frequencies, rope.scale, source);
}

} // namespace tutti::models::huggingface
