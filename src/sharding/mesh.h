// Mesh: how the ranks of a run are numbered along the axes of pipeline, data and tensor parallelism: pipe outermost,
// tensor innermost, so that ranks that communicate most are neighbours.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::sharding {

struct MeshPlace {
    int pipe = 0, data = 0, tensor = 0;
    bool operator==(const MeshPlace&) const = default;
};

struct Mesh {
    int pipe = 1;   // pipeline parallel: each rank has some stages of the model
    int data = 1;   // data parallel: replicas, each with its own samples
    int tensor = 1; // tensor parallel: every operator of a stage is split over it

    int ranks() const { return pipe * data * tensor; }
    int rank_of(const MeshPlace& place) const { return (place.pipe * data + place.data) * tensor + place.tensor; }
    MeshPlace place_of(int rank) const { return {rank / tensor / data, rank / tensor % data, rank % tensor}; }
    bool operator==(const Mesh&) const = default;
};

constexpr int most_ranks = 1 << 16;
void check(const Mesh& mesh); // Error where an axis is below 1, or there are too many ranks

// "data=2,pipe=4": axes in any order, those left out are 1. Error saying what is wrong with the text.
Mesh parse_mesh(std::string_view text);
// The same with the axes that are above 1; "data=1" where none is.
std::string to_string(const Mesh& mesh);

} // namespace tutti::sharding
