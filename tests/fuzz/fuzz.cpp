#include "fuzz.h"

#include "formats/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace tutti::fuzz {

using namespace formats;

Folder::Folder() {
    std::string name = "/dev/shm/tutti-fuzz-XXXXXX";
    TUTTI_CHECK(::mkdtemp(name.data()) != nullptr, "{}", name);
    path_ = name;
}

Folder::~Folder() { remove_quietly(path_); }

void Folder::make(std::string_view folder) const { fs::create_directories(path_ / folder); }

void Folder::write(std::string_view name, std::string_view bytes) const {
    const int descriptor = ::open((path_ / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    TUTTI_CHECK(descriptor >= 0, "{}", name);
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    ::close(descriptor);
    TUTTI_CHECK(written == static_cast<ssize_t>(bytes.size()), "{} of {} bytes", written, bytes.size());
}

std::string small_safetensors(std::string_view prefix) {
    std::vector<StoredTensor> tensors;
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16, DType::int64})
        tensors.push_back({fmt::format("{}{}", prefix, name_of(dtype)), dtype, {2, 3}});
    const SafetensorsLayout layout = lay_out_safetensors(tensors);
    std::string file = layout.head;
    while (file.size() < layout.size()) file += static_cast<char>(file.size() * 7);
    return file;
}

} // namespace tutti::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto processor_seconds = [] {
        timespec now{};
        ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
    };
    const double begin = processor_seconds();
    const int result = tutti::fuzz::read_input(data, size);
    const double taken = processor_seconds() - begin;
    if (taken > 1) {
        std::fprintf(stderr, "==0== ERROR: this input took %.1f seconds of processor time\n", taken);
        std::abort();
    }
    return result;
}
