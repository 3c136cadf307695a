// Where the loader looks for the libraries of the program and its plug-ins. Whoever can write into one of these folders
// has their code run.
#include "cli/program.h"

#include <elf.h>

#include <cstring>
#include <optional>

namespace tutti {

using namespace test;
namespace {

using namespace test;

// The RPATH or RUNPATH of an ELF file, with which of the two it is; empty where it has none.
std::string run_path_of(const fs::path& file) {
    const std::string bytes = read_text(file);
    auto at = [&]<class Part>(Part part, std::uint64_t offset) {
        if (offset + sizeof part > bytes.size()) throw std::runtime_error(file.string() + " is cut off");
        std::memcpy(&part, bytes.data() + offset, sizeof part);
        return part;
    };
    const auto header = at(Elf64_Ehdr{}, 0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) throw std::runtime_error(file.string() + " is not ELF");
    for (std::uint64_t s = 0; s < header.e_shnum; ++s) {
        const auto section = at(Elf64_Shdr{}, header.e_shoff + s * header.e_shentsize);
        if (section.sh_type != SHT_DYNAMIC) continue;
        const auto strings = at(Elf64_Shdr{}, header.e_shoff + section.sh_link * header.e_shentsize);
        for (std::uint64_t d = 0; d < section.sh_size / sizeof(Elf64_Dyn); ++d) {
            const auto entry = at(Elf64_Dyn{}, section.sh_offset + d * sizeof(Elf64_Dyn));
            if (entry.d_tag == DT_RPATH || entry.d_tag == DT_RUNPATH)
                return bytes.c_str() + strings.sh_offset + entry.d_un.d_val;
        }
    }
    return "";
}

// Empty where every folder of the path is absolute, or beside the file itself.
std::string mistake_in(const std::string& path) {
    if (path.empty()) return "";
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find(':', begin), path.size());
        const std::string place = path.substr(begin, end - begin);
        if (place.empty()) return "an empty place, which is the current folder";
        const bool own = place == "$ORIGIN" || place.starts_with("$ORIGIN/");
        if (!own && !place.starts_with('/')) return "the place " + place + ", which starts from the current folder";
        begin = end + 1;
    }
    return "";
}

TEST(RunPath, AMistakeInOneIsSeen) {
    EXPECT_EQ(mistake_in(""), "");
    EXPECT_EQ(mistake_in("$ORIGIN/../lib:/usr/lib:$ORIGIN"), "");
    for (const char* path : {":", "/usr/lib:", ":/usr/lib", "/usr/lib::$ORIGIN", "lib", "/usr/lib:.", "$ORIGINAL/lib"})
        EXPECT_NE(mistake_in(path), "") << path;
}

TEST(RunPath, LibrariesOfTheCurrentFolderAreNotLoaded) {
    int plugins = 0;
    for (const fs::path& file : entries_of(the_program().parent_path())) {
        const std::string name = file.filename().string();
        const bool plugin = name.starts_with("libtutti_") && file.extension() == ".so";
        plugins += plugin;
        if (!plugin && file != the_program()) continue;
        EXPECT_EQ(mistake_in(run_path_of(file)), "") << name << ": " << run_path_of(file);
    }
    EXPECT_GE(plugins, 1);                                   // tutti_nccl is built everywhere
    EXPECT_EQ(run_path_of(the_program()), "$ORIGIN/../lib"); // one is found where there is one
}

} // namespace
} // namespace tutti
