#include "base/error.h"

namespace tutti {

void report_bug(const char* expression, const char* file, int line, const std::string& values) {
    throw Bug(fmt::format("{}:{}: {} does not hold: {}", file, line, expression, values));
}

} // namespace tutti
