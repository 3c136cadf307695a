#include "sharding/mesh.h"

#include "support/temporary_folder.h"

namespace tutti {

using namespace sharding;
namespace {

TEST(Mesh, AxesComeInAnyOrderAndThoseLeftOutAreOne) {
    EXPECT_EQ(parse_mesh("data=2,pipe=3,tensor=4"), (Mesh{.pipe = 3, .data = 2, .tensor = 4}));
    EXPECT_EQ(parse_mesh("tensor=4,data=2"), (Mesh{.pipe = 1, .data = 2, .tensor = 4}));
    EXPECT_EQ(parse_mesh("pipe=1"), Mesh{});
    EXPECT_EQ(parse_mesh("dp=2,pp=3,tp=4"), parse_mesh("data=2,pipe=3,tensor=4")); // as others call them
}

TEST(Mesh, ItsTextGivesItBack) {
    for (const Mesh& mesh : {Mesh{}, Mesh{.data = 7}, Mesh{.pipe = 2, .tensor = 2}, Mesh{3, 5, 7}})
        EXPECT_EQ(parse_mesh(to_string(mesh)), mesh) << to_string(mesh);
    EXPECT_EQ(to_string(Mesh{.pipe = 2, .data = 3, .tensor = 1}), "data=3,pipe=2");
    EXPECT_EQ(to_string(Mesh{}), "data=1");
}

TEST(Mesh, MistakesInItsTextAreTold) {
    EXPECT_ERROR(parse_mesh("model=2"), "a mesh has no axis \"model\"; its axes are data, pipe and tensor");
    EXPECT_ERROR(parse_mesh("\x1b=2"), "\\u001b");
    EXPECT_ERROR(parse_mesh(""), "as in data=2,pipe=2,tensor=2");
    EXPECT_ERROR(parse_mesh("data"), "the mesh has \"data\"");
    EXPECT_ERROR(parse_mesh("data=2,"), "the mesh has \"\"");
    EXPECT_ERROR(parse_mesh("data=2,data=2"), "gives data twice");
    for (const char* size : {"0", "-1", "", "2x", "1.5", " 2", "65537", "99999999999999999999"})
        EXPECT_ERROR(parse_mesh(std::string("pipe=") + size), "in the mesh, pipe is \"");
    EXPECT_ERROR(parse_mesh("data=65536,pipe=65536,tensor=65536"), "more than 65536 ranks");
}

TEST(Mesh, NeighboursOnTheTensorAxisAreNeighbours) {
    const Mesh mesh{.pipe = 2, .data = 3, .tensor = 4};
    for (int rank = 0; rank < mesh.ranks(); ++rank) EXPECT_EQ(mesh.rank_of(mesh.place_of(rank)), rank);
    EXPECT_EQ(mesh.rank_of({.pipe = 0, .data = 0, .tensor = 1}), 1);
    EXPECT_EQ(mesh.rank_of({.pipe = 0, .data = 1, .tensor = 0}), 4);
    EXPECT_EQ(mesh.rank_of({.pipe = 1, .data = 0, .tensor = 0}), 12);
}

} // namespace
} // namespace tutti
