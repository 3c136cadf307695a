// Matmuls of bf16 by tiles: every arithmetic that this CPU runs, against sums in double precision, at sizes on and off
// the edges of tiles, panels and chunks.
#include "backend/cpu/tiled_matmul.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <random>

namespace tutti::backend::cpu {
namespace {

std::vector<const tiles::Arithmetic*> all_that_run() {
    std::vector<const tiles::Arithmetic*> found;
    for (const tiles::Arithmetic* one : {&tiles::plain(), &tiles::avx512_bf16(), &tiles::amx()})
        if (tiles::runs(*one)) found.push_back(one);
    return found;
}

std::vector<BFloat16> numbers(std::int64_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<BFloat16> values(static_cast<std::size_t>(count));
    for (BFloat16& value : values) value = BFloat16(normal(random));
    return values;
}

struct Shape {
    std::int64_t rows, columns, depth;
};
struct Kind {
    bool left_by_rows = true, right_by_rows = true, narrow = false, accumulate = false, bias = false;
};

// A matrix with a few elements between its lines, which belong to somebody else.
constexpr std::int64_t gap = 3;
Matrix lying(std::int64_t rows, std::int64_t columns, bool by_rows, DType dtype = DType::bfloat16) {
    return by_rows ? Matrix{dtype, rows, columns, columns + gap, 1} : Matrix{dtype, rows, columns, 1, rows + gap};
}
std::int64_t room(const Matrix& m) { return m.by_rows() ? m.rows * m.row_stride : m.columns * m.column_stride; }

struct Problem {
    Matmul matmul;
    std::vector<BFloat16> left, right, bias, narrow;
    std::vector<float> wide;

    Problem(const Shape& shape, const Kind& kind) {
        matmul.left = lying(shape.rows, shape.depth, kind.left_by_rows);
        matmul.right = lying(shape.depth, shape.columns, kind.right_by_rows);
        matmul.out = lying(shape.rows, shape.columns, true, kind.narrow ? DType::bfloat16 : DType::float32);
        matmul.accumulate = kind.accumulate;
        matmul.has_bias = kind.bias;
        left = numbers(room(matmul.left), 1);
        right = numbers(room(matmul.right), 2);
        bias = numbers(shape.columns, 3);
        narrow = numbers(room(matmul.out), 4);
        for (const BFloat16& value : narrow) wide.push_back(static_cast<float>(value));
    }

    // The result as floats, gaps and all.
    std::vector<float> run(const tiles::Arithmetic& arithmetic, int threads) const {
        omp_set_num_threads(threads);
        const std::unique_ptr<Kernel> kernel = make_tiled(matmul, arithmetic);
        std::vector<BFloat16> narrow_out = narrow;
        std::vector<float> wide_out = wide;
        std::vector<std::byte> workspace(static_cast<std::size_t>(kernel->workspace().count) + 64, std::byte{0xff});
        auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(values.data()); };
        auto input = [](const auto& values) { return reinterpret_cast<const std::byte*>(values.data()); };
        const std::array<const std::byte*, 3> inputs = {input(left), input(right), input(bias)};
        const bool is_narrow = matmul.out.dtype == DType::bfloat16;
        const std::array<std::byte*, 1> outputs = {is_narrow ? bytes(narrow_out) : bytes(wide_out)};
        const auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
        kernel->run({.inputs = inputs, .outputs = outputs, .workspace = workspace.data() + (64 - address % 64) % 64});
        if (!is_narrow) return wide_out;
        std::vector<float> found;
        for (const BFloat16& value : narrow_out) found.push_back(static_cast<float>(value));
        return found;
    }

    void expect(const std::vector<float>& found) const {
        const Matmul& p = matmul;
        auto at = [](const Matrix& m, const std::vector<BFloat16>& values, std::int64_t i, std::int64_t j) {
            return static_cast<double>(
                static_cast<float>(values[static_cast<std::size_t>(i * m.row_stride + j * m.column_stride)]));
        };
        int wrong = 0;
        for (std::int64_t i = 0; i < p.out.rows; ++i)
            for (std::int64_t j = 0; j < p.out.row_stride; ++j) {
                const auto place = static_cast<std::size_t>(i * p.out.row_stride + j);
                if (j >= p.out.columns) {
                    wrong += found[place] != wide[place]; // between the lines
                    continue;
                }
                double sum = 0, size = 0;
                for (std::int64_t k = 0; k < p.left.columns; ++k) {
                    const double product = at(p.left, left, i, k) * at(p.right, right, k, j);
                    sum += product;
                    size += std::abs(product);
                }
                if (p.has_bias) sum += static_cast<double>(static_cast<float>(bias[static_cast<std::size_t>(j)]));
                if (p.accumulate) sum += static_cast<double>(wide[place]);
                // Float sums of k terms, and half a unit in the last place of bf16.
                const double bound = size * 1e-6 + (p.out.dtype == DType::bfloat16 ? std::abs(sum) / 256 : 0) + 1e-6;
                wrong += !(std::abs(static_cast<double>(found[place]) - sum) <= bound);
            }
        EXPECT_EQ(wrong, 0);
    }
};

TEST(TiledMatmul, AgreesOnAllLayouts) {
    for (const tiles::Arithmetic* arithmetic : all_that_run())
        for (int bits = 0; bits < 32; ++bits) {
            const Kind kind{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0};
            SCOPED_TRACE(fmt::format("{}, kind {}", arithmetic->name, bits));
            const Problem problem({61, 83, 47}, kind);
            problem.expect(problem.run(*arithmetic, 2));
        }
}

TEST(TiledMatmul, AgreesOnAndOffTheEdges) {
    for (const tiles::Arithmetic* arithmetic : all_that_run())
        for (const Shape& shape : {Shape{16, 16, 16},
                                   {32, 32, 32},
                                   {33, 31, 33},
                                   {64, 17, 65},
                                   {1, 100, 40},
                                   {100, 1, 1},
                                   {130, 260, 31},
                                   {257, 40, 96}}) {
            SCOPED_TRACE(fmt::format("{}, {} x {} x {}", arithmetic->name, shape.rows, shape.columns, shape.depth));
            for (const bool narrow : {false, true}) {
                const Problem problem(shape, {.left_by_rows = !narrow, .right_by_rows = narrow, .narrow = narrow});
                problem.expect(problem.run(*arithmetic, 3));
            }
        }
}

// Depths of several chunks: sums go on in the result, or beside it where that is bf16.
TEST(TiledMatmul, AddsUpChunksOfTheDepth) {
    for (const tiles::Arithmetic* arithmetic : all_that_run())
        for (const std::int64_t depth : {1024, 1025, 2081, 3072})
            for (const bool narrow : {false, true})
                for (const bool accumulate : {false, true}) {
                    SCOPED_TRACE(fmt::format("{}, depth {}, narrow {}", arithmetic->name, depth, narrow));
                    const Problem problem({35, 50, depth},
                                          {.narrow = narrow, .accumulate = accumulate, .bias = !accumulate});
                    problem.expect(problem.run(*arithmetic, 2));
                }
}

// As the vocabulary's: one operand is packed by the thread that needs it, a few panels at a time.
TEST(TiledMatmul, PacksLargeOperandsInParts) {
    for (const tiles::Arithmetic* arithmetic : all_that_run())
        for (const bool tall : {false, true}) {
            SCOPED_TRACE(fmt::format("{}, {}", arithmetic->name, tall ? "tall" : "wide"));
            const Shape shape = tall ? Shape{9000, 40, 600} : Shape{40, 9000, 600};
            const Problem problem(shape, {.left_by_rows = !tall, .right_by_rows = tall});
            problem.expect(problem.run(*arithmetic, 2));
        }
}

TEST(TiledMatmul, GivesTheSameBitsOnAnyNumberOfThreads) {
    for (const tiles::Arithmetic* arithmetic : all_that_run()) {
        const Problem problem({300, 200, 1500}, {.narrow = false, .accumulate = true, .bias = true});
        const std::vector<float> one = problem.run(*arithmetic, 1);
        for (const int threads : {2, 3, 8}) EXPECT_EQ(problem.run(*arithmetic, threads), one) << threads;
    }
}

// All arithmetics read the same format: what is packed is the same to the byte.
TEST(Tiles, ArePackedAlike) {
    const std::vector<BFloat16> data = numbers(200 * 200, 5);
    for (const tiles::Arithmetic* arithmetic : all_that_run())
        for (const std::int64_t lines : {1, 15, 16, 17, 31, 32})
            for (const std::int64_t depth : {1, 2, 31, 32, 33, 64, 95})
                for (const bool along_depth : {false, true}) {
                    const tiles::Source source{data.data() + 1, 199, along_depth, lines, depth};
                    const auto count = static_cast<std::size_t>(tiles::packed_elements(depth));
                    for (const bool is_left : {false, true}) {
                        std::vector<BFloat16> expected(count, BFloat16(-7.0f)), found(count, BFloat16(9.0f));
                        (is_left ? tiles::plain().pack_left : tiles::plain().pack_right)(source, expected.data());
                        (is_left ? arithmetic->pack_left : arithmetic->pack_right)(source, found.data());
                        ASSERT_EQ(found, expected) << arithmetic->name << " " << lines << " lines, depth " << depth;
                    }
                }
}

// Written out: rows 0 and 16 begin the tiles of the left operand, pairs those of the right one.
TEST(Tiles, HaveTheFormatOfTileRegisters) {
    std::vector<BFloat16> matrix(32 * 32);
    for (std::size_t i = 0; i < matrix.size(); ++i)
        matrix[i].bits = static_cast<std::uint16_t>(i + 1); // 32 row + column
    std::vector<BFloat16> packed(static_cast<std::size_t>(tiles::packed_elements(32)));
    auto at = [&](std::size_t tile, std::size_t line, std::size_t i) {
        return packed[tile * 512 + line * 32 + i].bits - 1;
    };
    tiles::plain().pack_left({matrix.data(), 32, true, 32, 32}, packed.data());
    EXPECT_EQ(at(0, 3, 5), 32 * 3 + 5);
    EXPECT_EQ(at(1, 0, 31), 32 * 16 + 31);
    tiles::plain().pack_right({matrix.data(), 32, false, 32, 32}, packed.data());
    EXPECT_EQ(at(0, 0, 0), 0);
    EXPECT_EQ(at(0, 0, 1), 32);           // the next of the depth
    EXPECT_EQ(at(0, 0, 2), 1);            // the next column
    EXPECT_EQ(at(1, 5, 7), 32 * 11 + 19); // depth 2 * 5 + 1, column 16 + 3
}

TEST(Tiles, KeepNumbersThatAreNotFiniteAndSmallOnes) {
    for (const tiles::Arithmetic* arithmetic : all_that_run()) {
        std::vector<float> block(32 * 32, 1.0f);
        block[1] = std::nanf("");
        block[2] = INFINITY;
        block[3] = -INFINITY;
        block[4] = 1e-40f; // below what float32 has in full
        block[5] = 3.4e38f;
        std::vector<BFloat16> out(32 * 32);
        tiles::Target to{.rows = 1,
                         .columns = 6,
                         .out = out.data(),
                         .out_stride = 32,
                         .narrow = true,
                         .accumulate = false,
                         .partial = nullptr,
                         .partial_stride = 0,
                         .bias = nullptr};
        arithmetic->finish(block.data(), to);
        EXPECT_TRUE(std::isnan(static_cast<float>(out[1])));
        for (std::size_t i : {0, 2, 3, 4, 5}) EXPECT_EQ(out[i], BFloat16(block[i])) << arithmetic->name << i;
    }
}

TEST(TiledMatmul, LeavesSmallAndOddOnesToOthers) {
    const Problem problem({64, 64, 64}, {});
    EXPECT_TRUE(fits_tiles(problem.matmul));
    EXPECT_FALSE(fits_tiles(Problem({1, 64, 64}, {}).matmul)); // one token
    Matmul batched = problem.matmul;
    batched.batch.count = 2;
    EXPECT_FALSE(fits_tiles(batched));
    Matmul wide = problem.matmul;
    wide.left.dtype = wide.right.dtype = DType::float32;
    EXPECT_FALSE(fits_tiles(wide));
    Matmul scattered = problem.matmul;
    scattered.left.row_stride = 2 * scattered.left.columns, scattered.left.column_stride = 2;
    EXPECT_FALSE(fits_tiles(scattered));
}

} // namespace
} // namespace tutti::backend::cpu
