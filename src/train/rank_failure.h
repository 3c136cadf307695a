// RankFailure: a failure of one rank in work that it does by itself, such as reading a batch. The rank takes part in
// steps until all ranks have stopped, and only then reports the failure.
#pragma once

#include "comm/agree.h"

#include <exception>
#include <utility>

namespace tutti::train {

class RankFailure {
  public:
    bool is_there() const { return failure_ != nullptr; }
    // Does it, or keeps why it could not; the first reason stays.
    template <class Action>
    void keep(const Action& action) {
        try {
            action();
        } catch (const std::exception&) {
            add(std::current_exception());
        }
    }
    void add(std::exception_ptr failure) {
        if (failure && !failure_) failure_ = std::move(failure);
    }
    // All ranks call it together: throws on all of them what one has kept.
    void share(comm::Group& group) const {
        comm::agree(group, [this] {
            if (failure_) std::rethrow_exception(failure_);
        });
    }

  private:
    std::exception_ptr failure_;
};

} // namespace tutti::train
