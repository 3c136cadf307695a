// One system call of the program under attack, as the shim sees it: counted, failed or cut short if the attack says so,
// and written into the journal.
//
//   TUTTI_CHAOS_ROOT     the folder whose files count; calls on others pass unseen
//   TUTTI_CHAOS_JOURNAL  a file to which every call is appended (below); none: no journal
//   TUTTI_CHAOS_ATTACK   "CALL NUMBER ACTION once|on": what happens to the call of that kind and number, counted from 1
//                        in every process, or from it on. ACTION: an errno, `kill` (the process dies before the call),
//                        `half` (it dies after half of the bytes) or `short` (half of the bytes, and no error)
//   TUTTI_CHAOS_RANK     the attack is for this rank of MPI alone
//
// The journal is a sequence of records, in the order of the calls, of all processes:
//
//   CALL RANK DESCRIPTOR OFFSET LENGTH \n  LENGTH bytes of payload  \n
//
//   open      OFFSET: flags; payload: path          rename    payload: from, a zero byte, to
//   write     OFFSET: where; payload: what          unlink    payload: path (mkdir and rmdir as well)
//   truncate  OFFSET: size                          allocate  OFFSET: the size that the file has at least
//
// Calls that failed or change nothing stand there, too, with nothing but their name: to be counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::chaos {

enum class Call : std::uint8_t {
    open,
    read,
    write,
    fsync,
    rename,
    unlink,
    rmdir,
    mkdir,
    truncate,
    allocate,
    lock,
    close,
    list,
    entry,
    stat,
    access,
    map,
    thread,
    memory,
    buffer
};

// Whether a path, relative to an open folder, is under the root; it counts then.
bool is_watched(int folder, const char* path);
bool is_watched(int descriptor);
// The path from the root of the file system; valid until the thread's next call.
const char* whole_path(int folder, const char* path);

// Which descriptors are of files under the root.
void opened(int descriptor, const char* path);
void closed(int descriptor);

// A call from its beginning to its end; those of one run happen one after the other, so that the journal has their
// order.
class Watch {
  public:
    explicit Watch(Call call); // may end the process
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch(); // may end the process; errno stays

    bool fails() const;                      // errno is set
    std::size_t cut(std::size_t size) const; // how many of the bytes are read or written
    bool journals() const;
    void note(int descriptor, std::int64_t offset, std::string_view payload);

  private:
    Call call_;
    int action_ = 0;
    bool is_noted_ = false;
};

// Counts a thread or mapping that the program itself asks for, and says whether it fails.
bool fails_from(Call call, const void* caller);
// The same of an allocation: a `buffer` if it is large, and `memory` in any case.
bool fails_from(std::size_t size, const void* caller);
void begin_counting(); // of allocations: when main begins

} // namespace tutti::chaos
