#include "launch/mpirun.h"

#include "base/error.h"
#include "base/system_error.h"
#include "launch/session_folder.h"
#include "launch/stop_signals.h"
#include "terminal/terminal.h"
#include "terminal/words.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <vector>

namespace tutti::launch {
namespace {

constexpr std::string_view status_report = "\x1etutti status ", met_report = "\x1etutti met";
constexpr int passed_on_status = status_of_signal + SIGUSR1;

std::string find_mpirun(int ranks) {
    const char* path = std::getenv("PATH");
    for (const std::string& folder : terminal::split(path ? path : "", ':')) {
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

// What mpirun and its ranks leave on disk and in shared memory while they run. Of their own: in the folders that Open
// MPI shares, a run that ends can remove what another has just made, and what killed ranks leave stays for ever.
struct SessionFolders {
    SessionFolder temporary{temporary_folder()};
    std::optional<SessionFolder> shared_memory;

    SessionFolders() {
        if (const fs::path memory = "/dev/shm"; ::access(memory.c_str(), W_OK | X_OK) == 0)
            shared_memory.emplace(memory);
    }
    void remove() const {
        temporary.remove();
        if (shared_memory) shared_memory->remove();
    }

  private:
    static fs::path temporary_folder() {
        std::error_code failed;
        const fs::path path = fs::temp_directory_path(failed);
        if (failed) fail_system(failed.value(), "mpirun needs a folder for temporary files, and TMPDIR is none");
        return path;
    }
};

std::vector<std::string> mpirun_command(const run::RunConfig& config, const SessionFolders& session) {
    std::vector<std::string> words = {find_mpirun(config.ranks),
                                      "-q",
                                      "-n",
                                      std::to_string(config.ranks),
                                      "--oversubscribe",
                                      "--bind-to",
                                      "none",
                                      "--enable-recovery",
                                      "-x",
                                      terminal::launcher_variable};
    auto set = [&](const char* parameter, const std::string& value) {
        words.insert(words.end(), {"--mca", parameter, value});
    };
    set("orte_tmpdir_base", session.temporary.path().string());
    if (session.shared_memory) set("btl_vader_backing_directory", session.shared_memory->path().string());
    if (!has_lent_machines()) { // all ranks are here: they listen to no network
        words.insert(words.end(), {"--host", fmt::format("localhost:{}", config.ranks)});
        set("pml", "ob1");
        set("btl", "self,vader");
    }
    if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
    words.push_back(own_program().string());
    std::vector<std::string> own = terminal::split(read_whole("/proc/self/cmdline"), '\0');
    own.pop_back(); // after the last zero
    words.insert(words.end(), own.begin() + 1, own.end());
    return words;
}

// Passes on what the ranks write to standard error, line by line, but for their reports.
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
    void drop_the_rest() { drops_ = true; }
    std::optional<int> status() const { return status_; }
    bool have_met() const { return have_met_; }

  private:
    void take(std::string_view line) {
        if (drops_ || status_.value_or(0) != 0) return; // all is said; a rank that comes late need not say it again
        if (line.starts_with(status_report)) {
            const auto status =
                terminal::parse_integer(line.substr(status_report.size(), line.find('\n') - status_report.size()));
            if (status) status_ = static_cast<int>(*status);
        } else if (line.starts_with(met_report)) {
            have_met_ = true;
        } else if (!is_noise(line)) {
            terminal::say_on_errors(line);
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
    bool have_met_ = false, drops_ = false;
};

sigset_t signals() {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGCHLD);
    for (const int number : stop_signals)
        if (number != SIGHUP || !is_ignored(number)) ::sigaddset(&set, number); // it would come where it is blocked
    return set;
}

// Shells have what they start in the background ignore interrupts; as in a run of one rank, they are heeded all the
// same.
void heed_ignored_signals() {
    for (const int number : stop_signals)
        if (number != SIGHUP && is_ignored(number)) std::signal(number, SIG_DFL);
}

struct Pipe {
    int to_read = -1, to_write = -1;
    Pipe() {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_system(errno, "cannot start mpirun");
        to_read = ends[0];
        to_write = ends[1];
    }
};

// In a process group of its own: what is typed at the terminal comes to this process alone.
pid_t start(const std::vector<std::string>& words, int output, int errors, const sigset_t& mask) {
    std::vector<char*> pointers;
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    const std::string columns = std::to_string(terminal::output_is_terminal() ? terminal::terminal_columns() : 0);
    const pid_t id = ::fork();
    if (id != 0) return id;
    ::setenv(terminal::launcher_variable, columns.c_str(), 1);
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGUSR1); // the ranks stop in good order
    if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO); // through this process: mpirun gives up where nobody reads what it passes on
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
    std::_Exit(status_of_signal + signal);
}

// A running mpirun, from here: signals go to it, output and messages come from it.
class Job {
  public:
    Job(pid_t id, const SessionFolders& session, int signals, int output, int errors, std::chrono::seconds time_to_meet)
        : id_(id), session_(session), signals_(signals), output_(output), errors_(errors), time_to_meet_(time_to_meet) {
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    ~Job() { kill(); }

    int run() {
        while (output_ >= 0 || errors_ >= 0 || !is_over_) {
            std::array<pollfd, 4> waits = {{{signals_, POLLIN, 0},
                                            {errors_, POLLIN, 0},
                                            {has_output_ ? -1 : output_, POLLIN, 0},
                                            {has_output_ ? STDOUT_FILENO : -1, POLLOUT, 0}}};
            const int count = ::poll(waits.data(), waits.size(), static_cast<int>(patience().count()));
            if (count == 0 && is_over_) break; // something else holds the pipes open
            if (count == 0) lose_patience();
            if (waits[1].revents != 0 && !messages_.pass_on(errors_)) errors_ = -1;
            if (waits[2].revents != 0) has_output_ = true; // to be read when it can be written: signals do not wait
            if (waits[3].revents != 0 && !pass_output_on()) output_ = -1;
            if (waits[0].revents != 0) take_signal();
        }
        if (is_stopped_early_) return status_of_signal + asked_by_;
        if (messages_.status() == passed_on_status && asked_by_ != 0) return status_of_signal + asked_by_;
        if (messages_.status()) return *messages_.status();
        if (asked_by_ != 0) end(asked_by_); // the ranks could not heed it
        if (is_terminated_)
            fail_world("the ranks did not start within {}",
                       to_string(Seconds{static_cast<double>(time_to_meet_.count())}));
        fail_world("the ranks ended without a word: they were killed, or could not be started");
    }

  private:
    // When the end of a run is told its ranks end soon, unless one is stuck.
    std::chrono::milliseconds patience() const {
        using namespace std::chrono_literals;
        if (is_over_) return 1s;
        if (is_terminated_) return 2s;
        if (messages_.status()) return *messages_.status() == 0 || *messages_.status() > status_of_signal ? 10s : 2s;
        return messages_.have_met() ? -1ms : time_to_meet_;
    }
    void lose_patience() {
        ::kill(id_, is_terminated_ ? SIGKILL : SIGTERM); // mpirun takes the ranks with it
        is_terminated_ = true;
    }
    void kill() {
        if (is_over_) return;
        ::kill(id_, SIGKILL); // and the ranks follow
        ::waitpid(id_, nullptr, 0);
        is_over_ = true;
    }

    [[noreturn]] void end(int signal) {
        session_.remove();
        end_by(signal);
    }

    // False at the end.
    bool pass_output_on() {
        has_output_ = false;
        std::array<char, PIPE_BUF> bytes{};
        const ssize_t count = ::read(output_, bytes.data(), bytes.size());
        if (count > 0) terminal::print(std::string_view(bytes.data(), static_cast<std::size_t>(count)));
        return count > 0 || (count < 0 && errno == EINTR);
    }

    void take_signal() {
        signalfd_siginfo event{};
        if (::read(signals_, &event, sizeof event) != sizeof event || is_over_) return;
        const int signal = static_cast<int>(event.ssi_signo);
        if (signal == SIGCHLD) {
            is_over_ = ::waitpid(id_, nullptr, WNOHANG) == id_;
        } else if (ends_when_repeated(signal) && request_.is_repeated()) {
            kill();
            terminal::say_on_errors(sentence_of_end(signal));
            end(signal);
        } else if (asked_by_ == 0) {
            asked_by_ = signal;
            if (messages_.have_met())
                ::kill(id_, SIGUSR1); // which mpirun passes to every rank
            else
                stop_early();
        }
    }
    // Ranks that have not found each other may never do, and have nothing to save.
    void stop_early() {
        is_stopped_early_ = true;
        messages_.drop_the_rest();
        terminal::warn("stopped before the ranks had started: no step was run, so nothing was saved");
        lose_patience();
    }

    pid_t id_;
    const SessionFolders& session_;
    int signals_, output_, errors_;
    std::chrono::seconds time_to_meet_;
    Messages messages_;
    FirstRequest request_;
    int asked_by_ = 0; // the first signal
    bool has_output_ = false, is_over_ = false, is_terminated_ = false, is_stopped_early_ = false;
};

// mpirun stops for ever where it lacks files to talk to its ranks: it was seen to need 25 and 3 for each rank.
void check_open_files(int ranks) {
    const auto needed = static_cast<rlim_t>(40 + 4 * ranks);
    struct rlimit limit {};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
    if (limit.rlim_max < needed)
        fail("mpirun needs about {} open files for {} ranks, and {} are allowed: ulimit -n {} allows them, and --comm "
             "threads needs "
             "none",
             needed, ranks, limit.rlim_max, needed);
    limit.rlim_cur = needed;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

} // namespace

bool has_lent_machines() {
    return std::ranges::any_of(std::array{"SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE"},
                               [](const char* lender) { return std::getenv(lender) != nullptr; });
}

void check_mpirun(int ranks) {
    find_mpirun(ranks);
    check_open_files(ranks);
}

int run_mpirun(const run::RunConfig& config) {
    const SessionFolders session;
    const std::vector<std::string> words = mpirun_command(config, session);
    const sigset_t caught = signals();
    sigset_t before{};
    ::sigprocmask(SIG_BLOCK, &caught, &before);
    heed_ignored_signals(); // they are blocked by now
    const Pipe output, errors;
    const int events = ::signalfd(-1, &caught, SFD_CLOEXEC);
    if (events < 0) fail_system(errno, "cannot start mpirun");
    const pid_t id = start(words, output.to_write, errors.to_write, before);
    if (id < 0) fail_system(errno, "cannot start mpirun");
    ::close(output.to_write);
    ::close(errors.to_write);
    // A little more than the ranks themselves wait for each other: they know more.
    const std::chrono::seconds time_to_meet(static_cast<std::int64_t>(time_to_find_others(config)) + config.ranks + 20);
    return Job(id, session, events, output.to_read, errors.to_read, time_to_meet).run();
}

double time_to_find_others(const run::RunConfig& config) { return std::max(config.timeout, 60.0); }

void follow_launcher() {
    if (terminal::launcher_columns())
        ::prctl(PR_SET_PDEATHSIG, SIGKILL); // of mpirun, which ends in good order or by force
}

void report_to_launcher(int status) {
    if (!terminal::launcher_columns()) return;
    std::array<char, 64> line{}; // there may be no memory for a string
    terminal::say_on_errors(
        {line.data(), fmt::format_to_n(line.data(), line.size(), "{}{}\n", status_report, status).out});
}

void report_meeting_to_launcher() {
    if (terminal::launcher_columns()) terminal::say_on_errors(fmt::format("{}\n", met_report));
}

} // namespace tutti::launch
