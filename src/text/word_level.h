// A model whose tokens are whole words.
#pragma once

#include "text/model.h"

namespace tutti::text {

class WordLevel final : public Model {
  public:
    WordLevel(Vocabulary vocabulary, std::string unknown, std::string where)
        : vocabulary_(std::move(vocabulary)), unknown_(std::move(unknown)), where_(std::move(where)) {}

    void encode(std::string_view word, std::vector<Id>& ids) const override;
    const Vocabulary& vocabulary() const override { return vocabulary_; }

  private:
    Vocabulary vocabulary_;
    std::string unknown_, where_;
};

} // namespace tutti::text
