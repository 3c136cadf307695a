// Texts from files and standard input in batches, which threads work on while their order is kept. No more is held than
// a few batches per thread and the longest text.
#pragma once

#include "base/file.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tutti::text {

struct TextFile {
    std::string path; // "-": standard input
    bool lines;       // each line is a text; otherwise the whole file is one
};

struct TextBatch {
    struct Text {
        std::size_t begin, end; // in `bytes`
        std::uint64_t line;     // from 1; 0 where the file is one text
    };
    std::string file, bytes;
    std::vector<Text> texts;

    std::string_view text(const Text& text) const {
        return std::string_view(bytes).substr(text.begin, text.end - text.begin);
    }
    std::string place(const Text& text) const; // "corpus.jsonl, line 12"
};

class TextReader {
  public:
    explicit TextReader(std::vector<TextFile> files); // Error for one that cannot be opened
    ~TextReader();
    TextReader(const TextReader&) = delete;
    TextReader& operator=(const TextReader&) = delete;

    // False at the end of the last file.
    bool read(TextBatch& batch);
    std::uint64_t bytes() const { return bytes_; }             // read so far
    std::uint64_t total_bytes() const { return total_bytes_; } // of all files; 0 where that is not known

  private:
    class Source;
    bool read_lines(TextBatch& batch);
    void read_whole(TextBatch& batch);

    std::vector<TextFile> files_;
    std::size_t next_file_ = 0;
    std::unique_ptr<Source> source_; // the file that is being read; none: the next one
    std::string rest_;               // of the last line that was read
    std::uint64_t line_ = 0, bytes_ = 0, total_bytes_ = 0;
};

// Calls work(thread, batch) on so many threads, then finish(batch, result) for all batches in their order. The first
// batch that throws ends it, after those before it were finished.
template <class Result, class Work, class Finish>
void in_order(TextReader& reader, std::size_t threads, Work work, Finish finish) {
    constexpr std::size_t batches_per_thread = 8;
    struct Slot {
        TextBatch batch;
        Result result;
        std::exception_ptr error;
    };
    std::vector<Slot> slots(threads * batches_per_thread);
    for (bool more = true; more;) {
        std::size_t count = 0;
        std::exception_ptr reading; // what is wrong with a file comes behind what was read before
        try {
            while (count < slots.size() && (more = reader.read(slots[count].batch))) ++count;
        } catch (...) {
            reading = std::current_exception();
            more = false;
        }
        std::atomic<std::size_t> next = 0;
        const auto run = [&](std::size_t thread) {
            for (std::size_t i = next++; i < count; i = next++) {
                Slot& slot = slots[i];
                slot.error = nullptr;
                try {
                    slot.result = work(thread, slot.batch);
                } catch (...) {
                    slot.error = std::current_exception();
                }
            }
        };
        {
            std::vector<std::jthread> running;
            for (std::size_t thread = 1; thread < std::min(threads, count); ++thread) running.emplace_back(run, thread);
            run(0);
        }
        for (std::size_t i = 0; i < count; ++i) {
            if (slots[i].error) std::rethrow_exception(slots[i].error);
            finish(slots[i].batch, slots[i].result);
        }
        if (reading) std::rethrow_exception(reading);
    }
}

} // namespace tutti::text
