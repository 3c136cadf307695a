// BlockChain: a model as the planner sees it: blocks in order, and which of them are equal. What equal blocks cost is
// found out once, in a model of the same blocks with as few layers as show every window of three neighbours.
#pragma once

#include "models/model.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti::planner {

// A stored tensor that several blocks read.
struct TiedTensor {
    std::string name;
    std::vector<int> blocks;
    std::int64_t elements = 0;
};

struct BlockChain {
    std::string model{}; // architecture
    std::int64_t sequence = 0;
    DType dtype = DType::bfloat16;

    std::vector<int> classes{};             // per block; equal blocks are of one class
    std::vector<std::int64_t> parameters{}; // per block, elements of the whole
    std::vector<TiedTensor> ties{};
    std::int64_t all_parameters = 0;
    double forward_flops = 0; // of one sequence

    models::ModelSource sample; // the same blocks, fewer of them
    // Up to so many neighbours, by their classes: the first of them in the sample.
    static constexpr std::size_t longest_window = 3;
    std::map<std::vector<int>, int> windows{};
    int sample_blocks = 0;

    int blocks() const { return static_cast<int>(classes.size()); }
};

BlockChain chain_of(const models::ModelSource& source, std::int64_t sequence, DType dtype);

} // namespace tutti::planner
