#include "cli/mpirun.h"

#include "base/counted.h"
#include "base/error.h"
#include "base/file.h"
#include "base/system_error.h"
#include "cli/terminal.h"
#include "cli/words.h"
#include "train/process_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace tutti::cli {
namespace {

constexpr const char* variable = "TUTTI_LAUNCHER"; // columns of its terminal, or 0
constexpr std::string_view report = "\x1etutti status ";

std::string find_mpirun(int ranks) {
    const char* path = std::getenv("PATH");
    for (const std::string& folder : split(path ? path : "", ':')) {
        const std::string file = (fs::path(folder.empty() ? "." : folder) / "mpirun").string();
        if (::access(file.c_str(), X_OK) == 0) return file;
    }
    fail("mpirun is not installed, and {} ranks need it: apt-get install openmpi-bin on Debian, or --comm threads for "
         "ranks that are threads of one process",
         ranks);
}

std::string read_whole(const char* file) { // of /proc, whose files have no size
    std::string text;
    const int descriptor = ::open(file, O_RDONLY | O_CLOEXEC);
    std::array<char, 4096> bytes{};
    for (ssize_t count = 0; descriptor >= 0 && (count = ::read(descriptor, bytes.data(), bytes.size())) > 0;)
        text.append(bytes.data(), static_cast<std::size_t>(count));
    if (descriptor >= 0) ::close(descriptor);
    return text;
}

// Where mpirun and its ranks meet. Of its own: in the one that Open MPI shares, a run that ends can remove what another
// has just made.
class SessionFolder {
  public:
    SessionFolder() {
        std::error_code failed;
        const fs::path temporary = fs::temp_directory_path(failed);
        std::string pattern = (temporary / "tutti_XXXXXX").string();
        if (failed || !::mkdtemp(pattern.data()))
            fail_world("mpirun needs a folder for temporary files, and none can be made in {}: {}",
                       failed ? "TMPDIR" : temporary.string(), failed ? failed.message() : std::strerror(errno));
        path_ = pattern;
    }
    SessionFolder(const SessionFolder&) = delete;
    SessionFolder& operator=(const SessionFolder&) = delete;
    ~SessionFolder() { remove(); }
    void remove() const {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

std::vector<std::string> mpirun_command(const RunConfig& config, const fs::path& session) {
    std::vector<std::string> words = {
        find_mpirun(config.ranks), "-q", "-n",    std::to_string(config.ranks), "--oversubscribe", "--bind-to", "none",
        "--enable-recovery",       "-x", variable};
    words.insert(words.end(), {"--mca", "orte_tmpdir_base", session.string()});
    if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
    words.push_back(own_program().string());
    std::vector<std::string> own = split(read_whole("/proc/self/cmdline"), '\0');
    own.pop_back(); // after the last zero
    words.insert(words.end(), own.begin() + 1, own.end());
    return words;
}

// Told before they start and the machine comes to a halt; where somebody lent out machines, they may go to others.
void check_room(int ranks) {
    for (const char* lender : {"SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE"})
        if (std::getenv(lender)) return;
    constexpr Bytes least{std::int64_t{24} << 20}; // of a process with its libraries, beside all that it computes
    constexpr int most_per_core = 64;              // beyond that they hardly find each other
    const std::int64_t by_memory = machine_memory().count / least.count, by_cores = most_per_core * usable_cores();
    if (ranks > std::min(by_memory, by_cores))
        fail("{} ranks are too many for one machine with {} and {} of memory: at most {} start here, or give their "
             "machines to mpirun yourself, as in mpirun --hostfile FILE tutti train ...",
             ranks, counted(usable_cores(), "core"), to_string(machine_memory()), std::min(by_memory, by_cores));
}

// Passes on what the ranks write to standard error, line by line, but for their report.
class Messages {
  public:
    // False at the end.
    bool pass_on(int descriptor) {
        std::array<char, 4096> bytes{};
        const ssize_t count = ::read(descriptor, bytes.data(), bytes.size());
        if (count < 0) return errno == EINTR;
        if (count == 0 && !rest_.empty()) take(rest_);
        if (count == 0) return false;
        rest_.append(bytes.data(), static_cast<std::size_t>(count));
        for (std::size_t end = 0; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1))
            take(std::string_view(rest_).substr(0, end + 1));
        return true;
    }
    std::optional<int> status() const { return status_; }

  private:
    void take(std::string_view line) {
        if (status_.value_or(0) != 0) return; // all is said; a rank that comes back late need not say it again
        if (line.starts_with(report)) {
            const auto status = parse_integer(line.substr(report.size(), line.find('\n') - report.size()));
            if (status) status_ = static_cast<int>(*status);
        } else if (!is_noise(line)) {
            std::fwrite(line.data(), 1, line.size(), stderr);
        }
    }
    // What mpirun says of every rank that fails, and MPI of memory that it cannot reach because its process died. The
    // ranks tell both in their own words.
    static bool is_noise(std::string_view line) {
        auto holds = [&](std::string_view part) { return line.find(part) != std::string_view::npos; };
        return holds("] PMIX ERROR: ") ||
               ((holds("] Read -1, expected ") || holds("] Wrote -1, expected ")) && holds(", errno = "));
    }

    std::string rest_;
    std::optional<int> status_;
};

sigset_t signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&set, number);
    return set;
}

// In a process group of its own: what is typed at the terminal comes to this process alone.
pid_t start(const std::vector<std::string>& words, int errors, const sigset_t& mask) {
    std::vector<char*> pointers;
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    const std::string columns = std::to_string(output_is_terminal() ? terminal_columns() : 0);
    const pid_t id = ::fork();
    if (id != 0) return id;
    ::setenv(variable, columns.c_str(), 1);
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGUSR1); // the ranks stop in good order
    if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    ::dup2(errors, STDERR_FILENO);
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    ::execv(pointers[0], pointers.data());
    std::_Exit(127);
}

[[noreturn]] void end_by(int signal) {
    std::signal(signal, SIG_DFL);
    const sigset_t set = signals();
    ::raise(signal);
    ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
    std::_Exit(128 + signal);
}

// A running mpirun, from here: signals go to it, messages come from it.
class Job {
  public:
    Job(pid_t id, const SessionFolder& session, int signals, int errors)
        : id_(id), session_(session), signals_(signals), errors_(errors) {}

    int run() {
        while (is_open_ || !is_over_) {
            std::array<pollfd, 2> waits = {{{signals_, POLLIN, 0}, {is_open_ ? errors_ : -1, POLLIN, 0}}};
            const int count = ::poll(waits.data(), waits.size(), patience());
            if (count == 0 && is_over_) break; // something else holds the pipe open
            if (count == 0) lose_patience();
            if (waits[1].revents != 0) is_open_ = messages_.pass_on(errors_);
            if (waits[0].revents != 0) take_signal();
        }
        if (messages_.status()) return *messages_.status();
        if (asked_by_ != 0) end(asked_by_); // it came before the ranks could heed it
        fail_world("the ranks ended without a word: they were killed, or could not be started");
    }

  private:
    // Milliseconds; -1: for ever. When the end of a run is told its ranks end soon, unless one is stuck.
    int patience() const {
        if (is_over_) return 1000;
        if (!messages_.status()) return -1;
        return *messages_.status() != 0 ? 2000 : 10000;
    }
    void lose_patience() {
        ::kill(id_, is_terminated_ ? SIGKILL : SIGTERM); // mpirun takes the ranks with it
        is_terminated_ = true;
    }

    [[noreturn]] void end(int signal) {
        session_.remove();
        end_by(signal);
    }

    void take_signal() {
        signalfd_siginfo event{};
        if (::read(signals_, &event, sizeof event) != sizeof event || is_over_) return;
        if (event.ssi_signo == SIGCHLD) {
            is_over_ = ::waitpid(id_, nullptr, WNOHANG) == id_;
        } else if (request_.is_repeated()) {
            const int signal = static_cast<int>(event.ssi_signo);
            ::kill(id_, SIGKILL); // and the ranks follow
            ::waitpid(id_, nullptr, 0);
            const std::string_view sentence = sentence_of_end(signal);
            std::fwrite(sentence.data(), 1, sentence.size(), stderr);
            end(signal);
        } else if (asked_by_ == 0) {
            ::kill(id_, SIGUSR1); // which mpirun passes to every rank
            asked_by_ = static_cast<int>(event.ssi_signo);
        }
    }

    pid_t id_;
    const SessionFolder& session_;
    int signals_, errors_;
    Messages messages_;
    FirstRequest request_;
    int asked_by_ = 0; // the first signal
    bool is_open_ = true, is_over_ = false, is_terminated_ = false;
};

} // namespace

int run_mpirun(const RunConfig& config) {
    check_room(config.ranks);
    const SessionFolder session;
    const std::vector<std::string> words = mpirun_command(config, session.path());
    const sigset_t caught = signals();
    sigset_t before{};
    ::sigprocmask(SIG_BLOCK, &caught, &before);
    std::array<int, 2> errors{};
    const int events = ::signalfd(-1, &caught, SFD_CLOEXEC);
    if (events < 0 || ::pipe2(errors.data(), O_CLOEXEC) != 0) fail_system(errno, "cannot start mpirun");
    const pid_t id = start(words, errors[1], before);
    if (id < 0) fail_system(errno, "cannot start mpirun");
    ::close(errors[1]);
    return Job(id, session, events, errors[0]).run();
}

std::optional<int> launcher_columns() {
    const char* text = std::getenv(variable);
    const auto columns = text ? parse_integer(text) : std::nullopt;
    if (!columns || *columns < 0 || *columns > 100000) return std::nullopt;
    return static_cast<int>(*columns);
}

void follow_launcher() {
    if (launcher_columns()) ::prctl(PR_SET_PDEATHSIG, SIGKILL); // of mpirun, which ends in good order or by force
}

void report_to_launcher(int status) {
    if (!launcher_columns()) return;
    say_on_errors(fmt::format("{}{}\n", report, status));
}

} // namespace tutti::cli
