// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Uses the program's own tensors: an image whose rows are padded, a buffer that is computed while it is read, a block
// of an Eigen matrix. Nothing is packed or copied beforehand: collx reads and writes elements where they are, in the
// pass that sends or reduces them. Next: docs/tensors.md lists every way in, and the message for what is refused.
// collx-example: needs=eigen
#include <collx/collx.hpp>

#include <Eigen/Core>
#include <cstdio>
#include <ranges>
#include <vector>

#include "check.hpp"

// [doc:image]
// An image as graphics libraries store it: rows are `pitch` elements apart, and the gaps between them are not ours.
struct image {
    int width, height, pitch;
    std::vector<float> pixels =
        std::vector<float>(static_cast<std::size_t>(pitch) * static_cast<std::size_t>(height), -1);
    float& at(int x, int y) { return pixels[static_cast<std::size_t>(y * pitch + x)]; }
};

// Tells collx how to view the image. For a type you own, a member collx_buffer() does the same.
template <>
struct collx::buffer_traits<image> {
    static auto view(image& i) {
        return strided2d(i.pixels.data(), static_cast<std::size_t>(i.height), static_cast<std::size_t>(i.width),
                         i.pitch);
    }
};
// [doc:end]

namespace {

void average_images(collx::communicator& world) {
    image mine{.width = 300, .height = 200, .pitch = 320};
    for (int y = 0; y < mine.height; ++y)
        for (int x = 0; x < mine.width; ++x) mine.at(x, y) = static_cast<float>(x + y * 2 + world.rank());

    collx::all_reduce(world, mine, collx::average{});

    const float mean_rank = static_cast<float>(world.size() - 1) / 2;
    for (int y = 0; y < mine.height; ++y) {
        for (int x = 0; x < mine.width; ++x)
            example::expect(mine.at(x, y) == static_cast<float>(x + y * 2) + mean_rank, "the mean of the images");
        for (int x = mine.width; x < mine.pitch; ++x) example::expect(mine.at(x, y) == -1, "padding is left alone");
    }
    if (world.rank() == 0) std::printf("image 300 x 200, pitch 320: the mean has %g at (7, 3)\n", mine.at(7, 3));
}

#if !defined(__clang__) || __clang_major__ >= 16 // clang 14 and 15 cannot compile the views of libstdc++
void sum_of_squares(collx::communicator& world) {
    std::vector<float> x(100'000);
    for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>((i + static_cast<std::size_t>(world.rank())) % 10);
    // [doc:lazy]
    // A view has no memory: each square is computed when the reduction reads it.
    auto squares = x | std::views::transform([](float v) { return v * v; });
    std::vector<float> sums(x.size());
    collx::all_reduce(world, squares, sums);
    // [doc:end]
    for (std::size_t i = 0; i < x.size(); ++i) {
        float want = 0;
        for (int r = 0; r < world.size(); ++r) {
            const auto v = static_cast<float>((i + static_cast<std::size_t>(r)) % 10);
            want += v * v;
        }
        example::expect(sums[i] == want, "squares, summed");
    }
    if (world.rank() == 0) std::printf("lazy squares: element 5 sums to %g\n", sums[5]);
}
#else
void sum_of_squares(collx::communicator&) {}
#endif

void eigen_blocks(collx::communicator& world) {
    // [doc:eigen]
    Eigen::MatrixXd m = Eigen::MatrixXd::Constant(6, 8, -1);
    m.block(1, 2, 3, 4).setConstant(world.rank() + 1.0);
    collx::all_reduce(world, m.block(1, 2, 3, 4)); // strided in both dimensions, a temporary that refers to m: fine
    // [doc:end]
    const double sum = world.size() * (world.size() + 1) / 2.0;
    example::expect((m.block(1, 2, 3, 4).array() == sum).all(), "the block is reduced");
    example::expect((m.row(0).array() == -1).all() && (m.col(7).array() == -1).all(), "the rest is left alone");
    if (world.rank() == 0) std::printf("Eigen block 3 x 4 at (1, 2): each element is now %g\n", m(1, 2));
}

} // namespace

int main() {
    collx::run_threads(4, [](collx::communicator& world) {
        average_images(world);
        sum_of_squares(world);
        eigen_blocks(world);
    });
    return example::result();
}
