// Plug-ins: code that needs libraries that not every machine has. A plug-in is a shared library next to the program, or
// in ../lib of an installed one, opened when it is asked for.
#pragma once

#include <string>

namespace tutti {

struct Plugin {
    std::string name;        // of the file libtutti_NAME.so
    std::string provides;    // as in "this build has no device cuda"
    std::string subject;     // as in "the device cuda cannot be used here"
    std::string built_where; // as in "it is built where the toolkit is installed"
};

// The function that the plug-in exports by this name. Error saying in one sentence what is missing: the plug-in, or a
// library of it.
void* open_plugin(const Plugin& plugin, const char* function);

} // namespace tutti
