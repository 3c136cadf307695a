#include "comm/agree.h"

#include "base/error.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>

namespace tutti::comm {
namespace {

// How an action ended, as a text: empty where all is well, else the kind of failure and its sentence.
constexpr char error = 'e', world_error = 'w', bug = 'b';

std::string outcome_of(const std::function<void()>& action) {
    try {
        action();
        return {};
    } catch (const Error& failure) {
        return error + std::string(failure.what());
    } catch (const std::logic_error& failure) {
        return bug + std::string(failure.what());
    } catch (const std::bad_alloc&) {
        return world_error + std::string(out_of_memory);
    } catch (const std::exception& failure) { // of the operating system, too
        return world_error + std::string(failure.what());
    }
}

// Throws what befell a rank, which all know by now. One that goes on to end the run must not take away from slower ones
// what they have yet to hear: so all wait until everybody has heard it. What rank 0 says it mostly says for all.
[[noreturn]] void rethrow(Group& group, int rank, const std::string& outcome) {
    try {
        barrier(group);
    } catch (const WorldError&) { // the others were faster
    }
    const std::string sentence = (rank > 0 ? fmt::format("rank {}: ", rank) : "") + outcome.substr(1);
    if (outcome[0] == error) throw Error(sentence);
    if (outcome[0] == bug) throw Bug(sentence);
    throw WorldError(sentence);
}

} // namespace

void barrier(Group& group) { gather_texts(group, {}); }

std::vector<std::string> gather_texts(Group& group, const std::string& mine) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const auto length = static_cast<std::int64_t>(mine.size());
    std::vector<std::int64_t> lengths(ranks);
    const std::vector<std::int64_t> counts(ranks, sizeof length);
    group.wait(
        group.all_gather(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)), counts));
    std::int64_t total = 0;
    for (std::int64_t one : lengths) total += one;
    std::string all(static_cast<std::size_t>(total), '\0');
    if (total > 0)
        group.wait(group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), lengths));
    std::vector<std::string> texts;
    std::size_t first = 0;
    for (std::int64_t one : lengths) {
        texts.push_back(all.substr(first, static_cast<std::size_t>(one)));
        first += static_cast<std::size_t>(one);
    }
    return texts;
}

std::vector<std::string> gather_to_first(Group& group, const std::string& mine) {
    auto length = static_cast<std::int64_t>(mine.size());
    const auto bytes = std::as_writable_bytes(std::span(&length, 1));
    if (group.rank() > 0) {
        group.wait(group.send(bytes, 0));
        if (length > 0) group.wait(group.send(std::as_bytes(std::span(mine)), 0));
        return {};
    }
    std::vector<std::string> texts = {mine};
    for (int rank = 1; rank < group.size(); ++rank) {
        group.wait(group.receive(bytes, rank));
        std::string& text = texts.emplace_back(static_cast<std::size_t>(length), '\0');
        if (length > 0) group.wait(group.receive(std::as_writable_bytes(std::span(text)), rank));
    }
    return texts;
}

std::string broadcast_text(Group& group, const std::string& text, int root) {
    auto length = static_cast<std::int64_t>(text.size());
    group.wait(group.broadcast(std::as_writable_bytes(std::span(&length, 1)), root));
    std::string copy = text;
    copy.resize(static_cast<std::size_t>(length));
    if (length > 0) group.wait(group.broadcast(std::as_writable_bytes(std::span(copy)), root));
    return copy;
}

std::vector<std::size_t> ranks_of_machine(Group& group) {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    const std::vector<std::string> machines = gather_texts(group, name.data());
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < machines.size(); ++rank)
        if (machines[rank] == name.data()) ranks.push_back(rank);
    return ranks;
}

void agree(Group& group, const std::function<void()>& action) {
    if (group.size() == 1) return action();
    const std::vector<std::string> outcomes = gather_texts(group, outcome_of(action));
    const auto failed = std::ranges::find_if(outcomes, [](const std::string& outcome) { return !outcome.empty(); });
    if (failed != outcomes.end()) rethrow(group, static_cast<int>(failed - outcomes.begin()), *failed);
}

void first_does(Group& group, const std::function<void()>& action) {
    first_decides(group, [&] {
        action();
        return std::string();
    });
}

std::string first_decides(Group& group, const std::function<std::string()>& action) {
    if (group.size() == 1) return action();
    std::string text, outcome;
    if (group.rank() == 0) outcome = outcome_of([&] { text = action(); });
    outcome = broadcast_text(group, outcome);
    if (!outcome.empty()) rethrow(group, 0, outcome);
    return broadcast_text(group, text);
}

} // namespace tutti::comm
