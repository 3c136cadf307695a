#include "base/plugin.h"

#include "base/error.h"
#include "base/file.h"

#include <dlfcn.h>

namespace tutti {

void* open_plugin(const Plugin& plugin, const char* function) {
    const fs::path program = own_program(), file = "libtutti_" + plugin.name + ".so";
    const fs::path beside = program.parent_path() / file,
                   installed = program.parent_path().parent_path() / "lib" / file;
    const fs::path path = is_there(beside) ? beside : installed;
    if (!is_there(path))
        fail("this build has no {}: {} is not there (it is built where {})", plugin.provides, beside.string(),
             plugin.built_where);
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); // stays open as long as the program
    if (library == nullptr) {
        const char* error = ::dlerror();
        const std::string reason = error ? error : "its plug-in does not open";
        const std::size_t library_ends = reason.find(": cannot open shared object file");
        if (library_ends != std::string::npos) // a library that the plug-in needs
            fail("{} cannot be used here: {} is not found; install it, or name its folder in LD_LIBRARY_PATH",
                 plugin.subject, reason.substr(0, library_ends));
        fail("{} cannot be used here: {}", plugin.subject, reason);
    }
    void* found = ::dlsym(library, function);
    if (found == nullptr) fail("{} is no plug-in of this program", path.string());
    return found;
}

} // namespace tutti
