// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads Fashion-MNIST as Debian's package dataset-fashion-mnist installs it: gzipped IDX files (a magic number, the
// extents as big-endian words, then the bytes). Independent of models and ranks.
#pragma once

#include <zlib.h>

#include <Eigen/Core>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace fashion {

using matrix = Eigen::MatrixXf; // one column per image

inline constexpr int pixels = 28 * 28;
inline constexpr int classes = 10;
inline constexpr const char* folder = "/usr/share/datasets/fashion-mnist/";

struct missing_data : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline std::vector<std::uint8_t> read_gzip(const std::string& path) {
    const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
    if (file == nullptr)
        throw missing_data("cannot open " + path + ": install the package dataset-fashion-mnist (non-free section)");
    std::vector<std::uint8_t> bytes;
    for (constexpr unsigned block = 1 << 20;;) {
        const std::size_t have = bytes.size();
        bytes.resize(have + block);
        const int got = gzread(file.get(), bytes.data() + have, block);
        if (got < 0) throw std::runtime_error(path + " is damaged");
        bytes.resize(have + static_cast<std::size_t>(got));
        if (got == 0) return bytes;
    }
}

// Returns the elements of an IDX file of bytes. Its extents are [count, rest…], where `rest` is a product of extents.
inline std::vector<std::uint8_t> read_idx(const std::string& path, std::size_t dimensions, std::size_t rest) {
    auto bytes = read_gzip(path);
    const auto word = [&](std::size_t i) {
        std::size_t w = 0;
        for (std::size_t k = 0; k < 4; ++k) w = w << 8 | bytes[4 * i + k];
        return w;
    };
    const std::size_t head = 4 * (1 + dimensions);
    if (bytes.size() < head || word(0) != (0x800 | dimensions) || bytes.size() != head + word(1) * rest)
        throw std::runtime_error(path + " is no IDX file of the expected shape");
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(head));
    return bytes;
}

struct dataset {
    std::vector<std::uint8_t> images; // 784 bytes each
    std::vector<std::uint8_t> labels;
    int size() const { return static_cast<int>(labels.size()); }

    // Images first, first + 1, … of the given order, as columns of numbers around zero.
    matrix columns(const std::vector<int>& order, int first, int count) const {
        matrix m(pixels, count);
        for (int c = 0; c < count; ++c) {
            const std::uint8_t* image =
                &images[static_cast<std::size_t>(order[static_cast<std::size_t>(first + c)]) * pixels];
            for (int p = 0; p < pixels; ++p) m(p, c) = (static_cast<float>(image[p]) - 73.0f) / 128.0f; // 73: the mean
        }
        return m;
    }
    int label(const std::vector<int>& order, int i) const {
        return labels[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])];
    }
};

// which: "train" or "t10k".
inline dataset load(const std::string& which) {
    dataset d{read_idx(folder + which + "-images-idx3-ubyte.gz", 3, pixels),
              read_idx(folder + which + "-labels-idx1-ubyte.gz", 1, 1)};
    if (d.images.size() != d.labels.size() * pixels)
        throw std::runtime_error(which + ": as many labels as images expected");
    for (const auto l : d.labels)
        if (l >= classes) throw std::runtime_error(which + ": a label above 9");
    return d;
}

} // namespace fashion
