#include "base/system_error.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tutti {
namespace {

constexpr std::array lack_of_room = {ENOSPC, EDQUOT, EFBIG};
constexpr std::array failing_device = {EIO, ENXIO, ENODEV, EREMOTEIO};
constexpr std::array lost_server = {ESTALE,       ETIMEDOUT,  ENOLCK,   EHOSTDOWN,   EHOSTUNREACH,
                                    ECONNREFUSED, ECONNRESET, ENETDOWN, ENETUNREACH, ENOTCONN};
constexpr std::array exhausted_system = {EMFILE, ENFILE, ENOMEM, EAGAIN, EBUSY, EINTR, ENOBUFS};

bool is_in(const auto& errors, int error) { return std::ranges::find(errors, error) != errors.end(); }

} // namespace

bool is_of_the_world(int error) {
    return is_in(lack_of_room, error) || is_in(failing_device, error) || is_in(lost_server, error) ||
           is_in(exhausted_system, error);
}

void throw_system_error(int error, const std::string& what) {
    const std::string sentence = fmt::format("{}: {}", what, std::strerror(error));
    if (is_in(lack_of_room, error)) throw WorldError(sentence + "; make room, then try again");
    if (is_of_the_world(error)) throw WorldError(sentence);
    throw Error(sentence);
}

} // namespace tutti
