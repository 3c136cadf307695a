#include "backend/cuda/tuning_cache.h"

#include "base/error.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cmath>
#include <thread>

namespace tutti::backend::cuda {
namespace {

constexpr std::uint64_t largest_file = 8ull << 20;
constexpr std::size_t longest_work = 1024, longest_algorithm = 1024;

// Bytes in hexadecimal, or a name that begins with a letter.
bool is_algorithm(const std::string& text) {
    if (text.empty() || text.size() > longest_algorithm) return false;
    if (text.size() % 2 == 0 && text.find_first_not_of("0123456789abcdef") == std::string::npos) return true;
    return std::isalpha(static_cast<unsigned char>(text.front())) &&
           std::ranges::all_of(text, [](char c) { return std::isprint(static_cast<unsigned char>(c)); });
}

std::optional<TunedChoice> parse_choice(const nlohmann::json& value) {
    if (!value.is_object()) return std::nullopt;
    const auto algorithm = value.find("algorithm"), microseconds = value.find("microseconds");
    if (algorithm == value.end() || !algorithm->is_string() || microseconds == value.end() ||
        !microseconds->is_number())
        return std::nullopt;
    TunedChoice choice{algorithm->get<std::string>(), microseconds->get<double>()};
    if (!is_algorithm(choice.algorithm) || !std::isfinite(choice.microseconds) || choice.microseconds < 0)
        return std::nullopt;
    return choice;
}

// Held while the file is read, changed and replaced, so that nobody's choices get lost. Where the lock cannot be had
// (a file system without locks, a process that hangs) things go on without it.
class FileLock {
  public:
    explicit FileLock(fs::path path) {
        path += ".lock";
        descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 &&
               std::chrono::steady_clock::now() < give_up)
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ~FileLock() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

  private:
    int descriptor_ = -1;
};

} // namespace

TuningCache::TuningCache(const std::optional<fs::path>& folder, std::string_view name) {
    if (!folder) return;
    std::string file(name);
    for (char& c : file)
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
    path_ = *folder / (file + ".json");
    try {
        make_folders(*folder);
        writable_ = true;
    } catch (const std::exception&) {
    }
    choices_ = read();
}

std::optional<TunedChoice> TuningCache::find(const std::string& matmul) const {
    const std::lock_guard lock(mutex_);
    const auto at = choices_.find(matmul);
    if (at == choices_.end()) return std::nullopt;
    return at->second;
}

void TuningCache::refuse(const std::string& matmul) {
    const std::lock_guard lock(mutex_);
    choices_.erase(matmul);
    refused_.insert(matmul);
}

std::optional<TunedChoice> TuningCache::keep(const std::string& matmul, const TunedChoice& choice) {
    if (!writable_) return std::nullopt;
    const std::lock_guard lock(mutex_);
    try {
        const FileLock file_lock(path_);
        Choices all = choices_;
        for (auto& [key, found] : read()) // theirs before ours: all runs are to agree
            if (!refused_.contains(key)) all[key] = found;
        all.try_emplace(matmul, choice);
        write(all);
        refused_.erase(matmul);
        choices_ = std::move(all);
        return choices_.at(matmul);
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

TuningCache::Choices TuningCache::read() const {
    Choices choices;
    try {
        const InputFile file(path_);
        if (file.size() > largest_file) return {};
        std::string text(file.size(), '\0');
        file.read(0, std::as_writable_bytes(std::span(text)));
        const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
        if (!json.is_object()) return {};
        for (const auto& [matmul, value] : json.items())
            if (auto choice = parse_choice(value); choice && matmul.size() <= longest_work)
                choices.emplace(matmul, *std::move(choice));
    } catch (const std::exception&) { // it is not there, or not readable
        return {};
    }
    return choices;
}

// A name of its own for every write: two processes never share one.
void TuningCache::write(const Choices& choices) const {
    static std::atomic<unsigned> number = 0;
    nlohmann::json json = nlohmann::json::object();
    for (const auto& [matmul, choice] : choices)
        json[matmul] = {{"algorithm", choice.algorithm}, {"microseconds", std::round(choice.microseconds * 100) / 100}};
    fs::path temporary = path_;
    temporary += fmt::format(".{}.{}.tmp", ::getpid(), number++);
    OutputFile file(temporary);
    file.write(json.dump(2) + "\n");
    file.finish();
    rename_durably(temporary, path_);
}

} // namespace tutti::backend::cuda
