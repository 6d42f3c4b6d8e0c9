// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 needs=eigen sanitize=nightly
//
// Elements that are classes: complex, pair, tuple, Eigen's fixed vectors.
#include "class_support.hpp"

#include <complex>
#include <tuple>
#include <utility>

#include <Eigen/Core>

using namespace collx_test;

TEST_CASE("standard classes of numbers travel and are reduced") {
    for (const int n : {1, 3, 4})
        on_ranks(n, [](collx::communicator& w) {
            check_class<std::complex<double>>(
                w, "complex", [](int r, std::size_t i) { return std::complex<double>(r, static_cast<double>(i)); },
                collx::plus{});
            check_class<std::pair<int, double>>(
                w, "pair", [](int r, std::size_t i) { return std::pair(r, static_cast<double>(i)); },
                [](auto a, auto b) { return std::pair(a.first + b.first, a.second + b.second); });
            check_class<std::tuple<char, int, short>>(
                w, "tuple",
                [](int r, std::size_t i) { return std::tuple<char, int, short>(r, static_cast<int>(i), 1); },
                [](auto a, auto b) { return a < b ? b : a; });
        });
}

TEST_CASE("Eigen's fixed vectors travel and are reduced") {
    for (const int n : {1, 3, 4})
        on_ranks(n, [](collx::communicator& w) {
            check_class<Eigen::Vector3f>(
                w, "Vector3f",
                [](int r, std::size_t i) {
                    return Eigen::Vector3f(static_cast<float>(r), static_cast<float>(i), 1.0f);
                },
                [](const Eigen::Vector3f& a, const Eigen::Vector3f& b) -> Eigen::Vector3f { return a + b; });
            check_class<Eigen::Vector4d>(
                w, "Vector4d", [](int r, std::size_t i) { return Eigen::Vector4d(r, static_cast<double>(i), 1, 2); },
                [](const Eigen::Vector4d& a, const Eigen::Vector4d& b) -> Eigen::Vector4d { return a + b; });
        });
}
