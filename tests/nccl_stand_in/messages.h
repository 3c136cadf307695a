// Messages between ranks, threads or processes of one machine, as files in shared memory. A sender is done when its
// message has been taken: stricter than NCCL, which lets small ones go ahead.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tutti::test {

class Messages {
  public:
    Messages(std::string name, int rank) : name_(std::move(name)), rank_(rank) {}

    // The name of what is under way, for is_taken.
    std::string post(int to, std::span<const std::byte> content);
    std::vector<std::byte> receive(int from, std::size_t bytes); // nothing where it was given up
    void wait_until_taken(const std::string& message);           // or given up

    void give_up() { given_up_ = true; }
    bool given_up() const { return given_up_; }

  private:
    std::string name_;
    int rank_;
    std::map<int, int> sent_, received_; // so many, to and from whom
    std::atomic<bool> given_up_ = false;
};

} // namespace tutti::test
