// Runs the built program as a user would, and model folders to run it on.
#pragma once

#include "formats/json.h"
#include "formats/safetensors.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace tutti::test {

using Words = std::vector<std::string>;

// The program in a process of its own. Standard output and error go to files, or the output to a terminal.
class Process {
  public:
    explicit Process(Words words, const char* terminal = nullptr, const fs::path& program = the_program()) {
        words.insert(words.begin(), program.string());
        std::vector<char*> pointers;
        for (std::string& word : words) pointers.push_back(word.data());
        pointers.push_back(nullptr);
        posix_spawn_file_actions_t files;
        ::posix_spawn_file_actions_init(&files);
        for (auto [descriptor, name] : {std::pair{STDOUT_FILENO, "out"}, std::pair{STDERR_FILENO, "err"}})
            ::posix_spawn_file_actions_addopen(&files, descriptor, (folder_ / name).c_str(), O_CREAT | O_WRONLY, 0644);
        if (terminal) ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, terminal, O_WRONLY | O_NOCTTY, 0);
        posix_spawnattr_t attributes; // no signal is ignored, even where these tests run under nohup
        sigset_t all;
        ::sigfillset(&all);
        ::posix_spawnattr_init(&attributes);
        ::posix_spawnattr_setsigdefault(&attributes, &all);
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        const int error = ::posix_spawn(&id_, program.c_str(), &files, &attributes, pointers.data(), environ);
        ::posix_spawnattr_destroy(&attributes);
        ::posix_spawn_file_actions_destroy(&files);
        if (error != 0) throw std::runtime_error("cannot start " + program.string());
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process() {
        if (id_ <= 0) return;
        ::kill(id_, SIGKILL);
        ::waitpid(id_, nullptr, 0);
    }

    void signal(int number) const { ::kill(id_, number); }
    bool running() { return id_ > 0 && ::waitpid(id_, &raw_, WNOHANG) == 0; }
    int wait() { // the exit status, or minus the signal
        if (id_ > 0 && ::waitpid(id_, &raw_, 0) != id_) throw std::runtime_error("lost the program");
        id_ = 0;
        return WIFEXITED(raw_) ? WEXITSTATUS(raw_) : -WTERMSIG(raw_);
    }
    std::string output() const { return read_text(folder_ / "out"); }
    std::string errors() const { return read_text(folder_ / "err"); }

  private:
    TemporaryFolder folder_;
    pid_t id_ = 0;
    int raw_ = 0;
};

// A terminal that the program can write to and the test reads from.
class Terminal {
  public:
    Terminal() : descriptor_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
        if (descriptor_ < 0 || ::grantpt(descriptor_) != 0 || ::unlockpt(descriptor_) != 0)
            throw std::runtime_error("no terminal");
        name_ = ::ptsname(descriptor_);
    }
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;
    ~Terminal() { ::close(descriptor_); }

    const char* name() const { return name_.c_str(); }
    std::string read() const {
        std::string text;
        char bytes[1000];
        for (ssize_t count = 0; (count = ::read(descriptor_, bytes, sizeof bytes)) > 0;)
            text.append(bytes, static_cast<std::size_t>(count));
        return text;
    }

  private:
    int descriptor_;
    std::string name_;
};

struct Outcome {
    int status = 0;
    std::string output, errors;
};

inline Outcome tutti_with(const Words& words, const fs::path& program = the_program()) {
    Process process(words, nullptr, program);
    const int status = process.wait();
    return {status, process.output(), process.errors()};
}

// Status 2, one line on standard error that begins with the program's name and holds `part`, and nothing else.
inline void expect_refusal(const Words& words, const std::string& part, const fs::path& program = the_program()) {
    const Outcome outcome = tutti_with(words, program);
    std::string command = "tutti";
    for (const std::string& word : words) command += " " + word;
    EXPECT_EQ(outcome.status, 2) << command << "\n" << outcome.errors;
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << command << "\n" << outcome.errors << "lacks " << part;
    EXPECT_TRUE(outcome.errors.starts_with("tutti: ")) << outcome.errors;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
}

inline fs::path reference(const std::string& name) { return test_data() / "references" / name; }
inline const std::string gpt2 = reference("gpt2").string();

// A copy of a reference model whose config.json is changed.
inline fs::path changed_model(const TemporaryFolder& folder, const std::string& name,
                              const std::function<void(nlohmann::json&)>& change) {
    const fs::path copy = folder / "model";
    fs::remove_all(copy);
    fs::create_directory(copy);
    fs::copy_file(reference(name) / "model.safetensors", copy / "model.safetensors");
    nlohmann::json config = formats::read_json(reference(name) / "config.json");
    change(config);
    folder.write("model/config.json", config.dump());
    return copy;
}

// The lines of a file of JSON objects.
inline std::vector<nlohmann::json> json_lines(const std::string& text) {
    std::vector<nlohmann::json> lines;
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        lines.push_back(nlohmann::json::parse(text.substr(begin, end - begin)));
        begin = end + 1;
    }
    return lines;
}

} // namespace tutti::test
