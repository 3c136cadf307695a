// oneDNN's engine and stream, and what it must be told before its first use.
#pragma once

#include <dnnl.hpp>

namespace tutti::cpu {

class Onednn {
  public:
    Onednn();

    dnnl::engine engine;
    dnnl::stream stream;
};

} // namespace tutti::cpu
