#include "backend/plugin.h"

#include "base/error.h"

#include <dlfcn.h>

#include <filesystem>

namespace tutti {

std::unique_ptr<Device> open_plugin_device(const std::string& name) {
    namespace fs = std::filesystem;
    const fs::path program = fs::read_symlink("/proc/self/exe"), file = "libtutti_" + name + ".so";
    const fs::path beside = program.parent_path() / file,
                   installed = program.parent_path().parent_path() / "lib" / file;
    const fs::path path = fs::exists(beside) ? beside : installed;
    if (!fs::exists(path))
        fail("this build has no device {}: {} is not there (it is built where the toolkit is installed)", name,
             beside.string());
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); // stays open: kernels live as long as the program
    if (library == nullptr) {
        const char* error = ::dlerror();
        const std::string reason = error ? error : "its plug-in does not open";
        const std::size_t library_ends = reason.find(": cannot open shared object file");
        if (library_ends != std::string::npos) // a library that the plug-in needs
            fail("the device {} cannot be used here: {} is not found; install it, or name its folder in "
                 "LD_LIBRARY_PATH",
                 name, reason.substr(0, library_ends));
        fail("the device {} cannot be used here: {}", name, reason);
    }
    using Open = Device*();
    auto* open = reinterpret_cast<Open*>(::dlsym(library, "tutti_open_device"));
    if (open == nullptr) fail("{} is no plug-in of this program", path.string());
    return std::unique_ptr<Device>(open());
}

} // namespace tutti
