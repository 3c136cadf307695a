// Allocations, mappings and threads that stand before the system's own when this library is preloaded. Those that the
// program asks for count; what other libraries take is theirs, and they have their own ways to end.
#include "chaos/watch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <new>

using namespace tutti::chaos;

extern "C" {
// libc's own, under the names by which it can be had from inside malloc.
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

#define TUTTI_FAILS(what) fails_from(what, __builtin_return_address(0))

extern "C" {

void* malloc(size_t size) noexcept { return TUTTI_FAILS(size) ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) noexcept {
    return TUTTI_FAILS(count * size) ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) noexcept { return TUTTI_FAILS(size) ? nullptr : __libc_realloc(old, size); }
void* aligned_alloc(size_t alignment, size_t size) noexcept {
    return TUTTI_FAILS(size) ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** place, size_t alignment, size_t size) noexcept {
    void* found = TUTTI_FAILS(size) ? nullptr : __libc_memalign(alignment, size);
    if (found) *place = found;
    return found ? 0 : ENOMEM;
}

void* mmap(void* address, size_t size, int protection, int flags, int descriptor, off_t offset) noexcept {
    if (TUTTI_FAILS(Call::map)) return MAP_FAILED;
    return reinterpret_cast<void*>(::syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
}
void* mmap64(void*, size_t, int, int, int, off64_t) noexcept __attribute__((alias("mmap")));

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
    using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static auto* const own = reinterpret_cast<Create*>(::dlsym(RTLD_NEXT, "pthread_create"));
    return TUTTI_FAILS(Call::thread) ? errno : own(thread, attributes, start, argument);
}

} // extern "C"

// What stands where main is called from: constructors before it may allocate in peace.
namespace {

using Main = int (*)(int, char**, char**);
Main own_main = nullptr;
int main_at_last(int count, char** words, char** environment) {
    tutti::chaos::begin_counting();
    return own_main(count, words, environment);
}

} // namespace

extern "C" int __libc_start_main(Main main, int count, char** words, void (*begin)(), void (*end)(), void (*close)(),
                                 void* stack) {
    using Start = int(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
    own_main = main;
    return reinterpret_cast<Start*>(::dlsym(RTLD_NEXT, "__libc_start_main"))(main_at_last, count, words, begin, end,
                                                                             close, stack);
}

namespace {

// As the language has it: without memory the handler decides.
template <class Allocate>
void* allocate(std::size_t size, const void* caller, Allocate own) {
    for (;;) {
        if (!tutti::chaos::fails_from(size, caller))
            if (void* found = own()) return found;
        const std::new_handler handler = std::get_new_handler();
        if (!handler) throw std::bad_alloc();
        handler();
    }
}

} // namespace

void* operator new(std::size_t size) {
    return allocate(size, __builtin_return_address(0), [&] { return __libc_malloc(size); });
}
void* operator new[](std::size_t size) {
    return allocate(size, __builtin_return_address(0), [&] { return __libc_malloc(size); });
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, __builtin_return_address(0),
                    [&] { return __libc_memalign(static_cast<std::size_t>(alignment), size); });
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return allocate(size, __builtin_return_address(0),
                    [&] { return __libc_memalign(static_cast<std::size_t>(alignment), size); });
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return TUTTI_FAILS(size) ? nullptr : __libc_malloc(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
    return TUTTI_FAILS(size) ? nullptr : __libc_malloc(size);
}
