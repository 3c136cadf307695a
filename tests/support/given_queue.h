// GivenQueue: a queue of host memory whose copies are work that is done some time after it was given.
#pragma once

#include "backend/device.h"

#include <cstring>
#include <functional>

namespace tutti::test {

class GivenQueue : public backend::Queue {
  public:
    virtual void give(std::function<void()> work) = 0; // any work

    void copy_in(std::byte* to, std::span<const std::byte> from) override {
        give([=] { std::memcpy(to, from.data(), from.size()); });
    }
    void copy_out(std::span<std::byte> to, const std::byte* from) override {
        give([=] { std::memcpy(to.data(), from, to.size()); });
    }
    void copy_blocks(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
                     std::int64_t bytes, std::int64_t count) override {
        give([=] {
            for (std::int64_t i = 0; i < count; ++i)
                std::memcpy(to + i * to_stride, from + i * from_stride, static_cast<std::size_t>(bytes));
        });
    }
    void clear(std::span<std::byte> bytes) override {
        give([=] { std::memset(bytes.data(), 0, bytes.size()); });
    }
    void wait(const std::shared_ptr<const backend::Event>& event) override {
        give([event] { event->synchronize(); });
    }
};

} // namespace tutti::test
