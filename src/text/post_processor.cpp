#include "text/post_processor.h"

#include "base/error.h"

#include <algorithm>
#include <utility>

namespace tutti::text {
namespace {

class TemplateProcessor final : public PostProcessor {
  public:
    TemplateProcessor(std::vector<TemplatePiece> single, std::vector<TemplatePiece> pair, std::string where)
        : single_(std::move(single)), pair_(std::move(pair)), where_(std::move(where)) {}

    std::size_t check(std::size_t parts, bool special_tokens) const override {
        if (parts != 1 && parts != 2)
            fail("{}: a template follows on a processor that makes {} parts, and a template takes one or two", where_,
                 parts);
        std::size_t made = 0;
        for (const TemplatePiece& piece : parts == 1 ? single_ : pair_) {
            if (piece.input && *piece.input >= parts)
                fail("{}: the template for a single text asks for a second one ($B)", where_);
            if (piece.input || special_tokens) ++made;
        }
        return made;
    }

    Encodings apply(Encodings parts, bool special_tokens) const override {
        Encodings result;
        for (const TemplatePiece& piece : parts.size() == 1 ? single_ : pair_)
            if (piece.input)
                result.push_back(parts[*piece.input]);
            else if (special_tokens)
                result.push_back(piece.ids);
        return result;
    }

  private:
    std::vector<TemplatePiece> single_, pair_;
    std::string where_;
};

class BertProcessor final : public PostProcessor {
  public:
    BertProcessor(Id first, Id last, bool roberta) : first_(first), last_(last), roberta_(roberta) {}

    std::size_t check(std::size_t parts, bool) const override { return parts; }
    Encodings apply(Encodings parts, bool special_tokens) const override {
        for (std::size_t i = 0; special_tokens && i < parts.size(); ++i) {
            if (i == 0 || roberta_) parts[i].insert(parts[i].begin(), i == 0 ? first_ : last_);
            parts[i].push_back(last_);
        }
        return parts;
    }

  private:
    Id first_, last_;
    bool roberta_;
};

class PlainProcessor final : public PostProcessor {
  public:
    std::size_t check(std::size_t parts, bool) const override { return parts; }
    Encodings apply(Encodings parts, bool) const override { return parts; }
};

class SequenceProcessor final : public PostProcessor {
  public:
    explicit SequenceProcessor(std::vector<PostProcessorPointer> processors) : processors_(std::move(processors)) {}

    std::size_t check(std::size_t parts, bool special_tokens) const override {
        for (const PostProcessorPointer& processor : processors_) parts = processor->check(parts, special_tokens);
        return parts;
    }
    Encodings apply(Encodings parts, bool special_tokens) const override {
        for (const PostProcessorPointer& processor : processors_)
            parts = processor->apply(std::move(parts), special_tokens);
        return parts;
    }

  private:
    std::vector<PostProcessorPointer> processors_;
};

} // namespace

PostProcessorPointer template_processor(std::vector<TemplatePiece> single, std::vector<TemplatePiece> pair,
                                        std::string where) {
    return std::make_unique<TemplateProcessor>(std::move(single), std::move(pair), std::move(where));
}
PostProcessorPointer bert_processor(Id first, Id last, bool roberta) {
    return std::make_unique<BertProcessor>(first, last, roberta);
}
PostProcessorPointer plain_processor() { return std::make_unique<PlainProcessor>(); }
PostProcessorPointer sequence_processor(std::vector<PostProcessorPointer> processors) {
    return std::make_unique<SequenceProcessor>(std::move(processors));
}

} // namespace tutti::text
