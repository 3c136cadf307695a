// A trie of tokens by their bytes: which of them begin at a place of a text.
#pragma once

#include "text/flat_map.h"
#include "text/vocabulary.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tutti::text {

class TokenTrie {
  public:
    using Node = std::uint32_t;
    static constexpr Node root = 0;

    void add(std::string_view token, Id id) {
        Node node = root;
        for (char byte : token) {
            Node& child = children_[edge(node, byte)];
            if (child == root) {
                child = static_cast<Node>(ids_.size());
                ids_.push_back(none);
            }
            node = child;
        }
        ids_[node] = id;
    }

    // The node one byte further; the root where there is none.
    Node child(Node node, char byte) const {
        const Node* found = children_.find(edge(node, byte));
        return found == nullptr ? root : *found;
    }
    // The node behind a text; nothing where no token begins with it.
    std::optional<Node> node_of(std::string_view text) const {
        Node node = root;
        for (char byte : text)
            if (node = child(node, byte); node == root) return std::nullopt;
        return node;
    }
    bool ends_token(Node node) const { return ids_[node] != none; }
    Id id(Node node) const { return static_cast<Id>(ids_[node]); }

  private:
    static constexpr std::int64_t none = -1;
    static std::uint64_t edge(Node node, char byte) {
        return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
    }

    FlatMap<Node> children_;
    std::vector<std::int64_t> ids_{none};
};

} // namespace tutti::text
