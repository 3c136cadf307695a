#include "chaos/watch.h"

#include <fcntl.h>
#include <link.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace tutti::chaos {
namespace {

constexpr std::array names = {"open",  "read",     "write",    "fsync",  "rename", "unlink", "rmdir",
                              "mkdir", "truncate", "allocate", "lock",   "close",  "list",   "entry",
                              "stat",  "access",   "map",      "thread", "memory", "buffer"};
constexpr int kill_before = -1, kill_at_half = -2, cut_short = -3; // beside the numbers of errors

struct Attack {
    int call = -1;
    long number = 0;
    int action = 0;
    bool stays = false;
};

struct Code { // of a library
    std::uintptr_t begin = 0, end = 0;
};

// Plain arrays: this is used before constructors ran and after destructors did.
char root[PATH_MAX];
int journal = -1, rank = -1;
Attack attack;
std::array<Code, 8> own_code; // of the program and the libraries that allocate in its name
std::array<std::atomic<long>, names.size()> counts;
std::array<char[PATH_MAX], 1024> paths; // by descriptor; empty: not under the root
std::mutex one_at_a_time;
std::atomic<bool> is_ready = false, is_counting = false;
constexpr std::size_t large = 4096;

int action_of(const char* text) {
    if (std::strcmp(text, "kill") == 0) return kill_before;
    if (std::strcmp(text, "half") == 0) return kill_at_half;
    if (std::strcmp(text, "short") == 0) return cut_short;
    return std::atoi(text);
}

void read_attack(const char* text) {
    char call[16], action[16], span[16];
    long number = 0;
    if (std::sscanf(text, "%15s %ld %15s %15s", call, &number, action, span) != 4) std::abort();
    const auto found = std::ranges::find_if(names, [&](const char* name) { return std::strcmp(name, call) == 0; });
    if (found == names.end()) std::abort();
    attack = {static_cast<int>(found - names.begin()), number, action_of(action), std::strcmp(span, "on") == 0};
}

int add_code(dl_phdr_info* library, std::size_t, void* place) {
    auto& next = *static_cast<std::size_t*>(place);
    const std::string_view name = library->dlpi_name;
    const bool is_own = name.empty() || name.find("libstdc++") != name.npos || name.find("libfmt") != name.npos;
    for (int i = 0; is_own && i < library->dlpi_phnum && next < own_code.size(); ++i) {
        const auto& segment = library->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X)) continue;
        const std::uintptr_t begin = library->dlpi_addr + segment.p_vaddr;
        own_code[next++] = {begin, begin + segment.p_memsz};
    }
    return 0;
}

__attribute__((constructor)) void prepare() {
    const char* folder = std::getenv("TUTTI_CHAOS_ROOT");
    if (!folder) return;
    std::snprintf(root, sizeof root, "%s", folder);
    if (const char* text = std::getenv("OMPI_COMM_WORLD_RANK")) rank = std::atoi(text);
    const char* whose = std::getenv("TUTTI_CHAOS_RANK");
    if (const char* text = std::getenv("TUTTI_CHAOS_ATTACK"); text && (!whose || std::atoi(whose) == rank))
        read_attack(text);
    if (const char* file = std::getenv("TUTTI_CHAOS_JOURNAL"))
        journal =
            static_cast<int>(::syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    std::size_t none = 0;
    ::dl_iterate_phdr(add_code, &none);
    is_ready = true;
}

void append(const char* bytes, std::size_t size) {
    while (size > 0) {
        const long count = ::syscall(SYS_write, journal, bytes, size);
        if (count <= 0) std::abort();
        bytes += count, size -= static_cast<std::size_t>(count);
    }
}

void record(Call call, int descriptor, std::int64_t offset, std::string_view payload) {
    char line[128];
    const int length = std::snprintf(line, sizeof line, "%s %d %d %lld %zu\n", names[static_cast<std::size_t>(call)],
                                     rank, descriptor, static_cast<long long>(offset), payload.size());
    append(line, static_cast<std::size_t>(length));
    append(payload.data(), payload.size());
    append("\n", 1);
}

// How often the program allocated: too often for a record each.
__attribute__((destructor)) void record_allocations() {
    if (journal < 0) return;
    ::syscall(SYS_flock, journal, LOCK_EX); // other processes may still write to it
    for (const Call call : {Call::memory, Call::buffer})
        if (const long count = counts[static_cast<std::size_t>(call)]; count > 0) record(call, -1, count, {});
    ::syscall(SYS_flock, journal, LOCK_UN);
}

// What happens to the next call of the kind: 0, the number of an error, or one of the actions.
int next_action(Call call) {
    const long number = ++counts[static_cast<std::size_t>(call)];
    if (static_cast<int>(call) != attack.call || number < attack.number) return 0;
    return number == attack.number || attack.stays ? attack.action : 0;
}

[[noreturn]] void die() {
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
}

} // namespace

const char* whole_path(int folder, const char* path) {
    static thread_local char whole[2 * PATH_MAX];
    if (path[0] == '/') return path;
    if (folder == AT_FDCWD) {
        if (::syscall(SYS_getcwd, whole, PATH_MAX) < 0) return "";
    } else if (folder >= 0 && folder < static_cast<int>(paths.size())) {
        std::strcpy(whole, paths[static_cast<std::size_t>(folder)]);
    } else {
        return "";
    }
    const std::size_t length = std::strlen(whole);
    std::snprintf(whole + length, sizeof whole - length, "/%s", path);
    return whole;
}

bool is_watched(int folder, const char* path) {
    if (!is_ready || !path) return false;
    const std::string_view whole = whole_path(folder, path), above = root;
    return whole.starts_with(above) && (whole.size() == above.size() || whole[above.size()] == '/');
}

bool is_watched(int descriptor) {
    return is_ready && descriptor >= 0 && descriptor < static_cast<int>(paths.size()) &&
           paths[static_cast<std::size_t>(descriptor)][0] != 0;
}

void opened(int descriptor, const char* path) {
    if (descriptor < 0 || descriptor >= static_cast<int>(paths.size())) return;
    std::snprintf(paths[static_cast<std::size_t>(descriptor)], PATH_MAX, "%s", path);
}

void closed(int descriptor) { opened(descriptor, ""); }

Watch::Watch(Call call) : call_(call) {
    one_at_a_time.lock();
    if (journal >= 0) ::syscall(SYS_flock, journal, LOCK_EX);
    action_ = next_action(call);
    if (action_ == kill_before) die();
}

Watch::~Watch() {
    const int error = errno;
    if (journal >= 0 && !is_noted_) record(call_, -1, 0, {});
    if (action_ == kill_at_half) die();
    if (journal >= 0) ::syscall(SYS_flock, journal, LOCK_UN);
    one_at_a_time.unlock();
    errno = error;
}

bool Watch::fails() const {
    if (action_ > 0) errno = action_;
    return action_ > 0;
}

std::size_t Watch::cut(std::size_t size) const {
    return action_ == kill_at_half || action_ == cut_short ? (size + 1) / 2 : size;
}

bool Watch::journals() const { return journal >= 0; }

void Watch::note(int descriptor, std::int64_t offset, std::string_view payload) {
    if (journal < 0) return;
    record(call_, descriptor, offset, payload);
    is_noted_ = true;
}

bool fails_from(Call call, const void* caller) {
    if (!is_ready) return false;
    const auto address = reinterpret_cast<std::uintptr_t>(caller);
    const bool is_own =
        std::ranges::any_of(own_code, [&](Code code) { return address >= code.begin && address < code.end; });
    if (!is_own) return false;
    const int action = next_action(call);
    if (action > 0) errno = action;
    return action > 0;
}

bool fails_from(std::size_t size, const void* caller) {
    if (!is_counting) return false;
    const bool fails_as_large = size >= large && fails_from(Call::buffer, caller);
    return fails_from(Call::memory, caller) || fails_as_large;
}

void begin_counting() { is_counting = true; }

} // namespace tutti::chaos
