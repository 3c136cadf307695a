#include "text/word_level.h"

#include "base/error.h"
#include "formats/json.h"

namespace tutti::text {

void WordLevel::encode(std::string_view word, std::vector<Id>& ids) const {
    auto id = vocabulary_.find(word);
    if (!id) id = vocabulary_.find(unknown_);
    if (!id)
        fail("{}: the word {} is no token, and neither is the unk_token {}", where_, formats::in_quotes(word),
             formats::in_quotes(unknown_));
    ids.push_back(*id);
}

} // namespace tutti::text
