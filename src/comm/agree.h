// Agreement between ranks by short texts, for decisions and files that all of them share, not for tensors. Every rank
// of the group calls these in the same order.
#pragma once

#include "comm/group.h"

#include <functional>
#include <string>
#include <vector>

namespace tutti::comm {

void barrier(Group& group);                                                      // returns when all ranks have come
std::vector<std::string> gather_texts(Group& group, const std::string& mine);    // of every rank
std::vector<std::string> gather_to_first(Group& group, const std::string& mine); // the same; of others than 0: none
template <class T>
std::vector<T> gather_values(Group& group, const T& mine) { // of every rank
    std::vector<T> all(static_cast<std::size_t>(group.size()));
    const std::vector<std::int64_t> counts(all.size(), sizeof(T));
    group.wait(group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), counts));
    return all;
}
std::string broadcast_text(Group& group, const std::string& text, int root = 0); // root's
std::vector<std::size_t> ranks_of_machine(Group& group);                         // of this rank's, itself among them

// Every rank calls a function that may fail. If none fails, all go on. If some fail, all throw the same Error or
// WorldError, that of the first rank that failed, so that none waits for a rank that has given up.
void agree(Group& group, const std::function<void()>& action);
// Rank 0 does it alone, while the others wait to hear how it went; what it returns, all return.
void first_does(Group& group, const std::function<void()>& action);
std::string first_decides(Group& group, const std::function<std::string()>& action);

} // namespace tutti::comm
