// Mesh: how the ranks of a run are numbered along the axes of parallelism: pipe outermost, then data, tensor innermost,
// so that ranks that talk most are neighbours.
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
    int pipe = 1;   // stages of the model are spread over it
    int data = 1;   // replicas, each with samples of its own
    int tensor = 1; // every operator of a stage is split over it

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
