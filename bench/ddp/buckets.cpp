// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx::bucketed for programs of other languages, as much of it as step.py wants: plain functions, loaded by name. A
// function that can fail returns null, or 1; gradients_error() says why. One communicator per process, found by the
// launcher's variables.
#include <collx/collx.hpp>
#include <collx/comm/bucketed.hpp>
#include <collx/comm/progress.hpp>
#include <collx/net.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace {

std::string why;
std::unique_ptr<collx::communicator> job;

template <class F>
auto told(F&& f, decltype(f()) failed) {
    try {
        return f();
    } catch (const std::exception& e) {
        why = e.what();
        return failed;
    }
}

struct gradients {
    explicit gradients(const collx::bucket_options& o) : buckets(*job, o) {}
    collx::bucketed<float> buckets;
    std::vector<std::size_t> sizes;
};

} // namespace

extern "C" {

const char* gradients_error() { return why.c_str(); }

// Tensors of sizes[0..n-1] floats, averaged over all ranks. Collective.
gradients* gradients_open(int n, const std::size_t* sizes, float* const* at, std::size_t bucket_bytes,
                          std::size_t first_bytes, int has_thread) {
    return told(
        [&] {
            if (!job) job = std::make_unique<collx::communicator>();
            auto g = std::make_unique<gradients>(
                collx::bucket_options{.bytes = bucket_bytes, .first_bytes = first_bytes, .average = true});
            g->sizes.assign(sizes, sizes + n);
            for (int i = 0; i < n; ++i)
                (void)g->buckets.add(std::to_string(i), collx::contiguous_view<float>(at[i], sizes[i]));
            if (has_thread) g->buckets.with(collx::progress::thread{});
            return g.release();
        },
        static_cast<gradients*>(nullptr));
}
// Tensor i has its gradient, which lies there in this step.
int gradients_ready(gradients* g, int i, float* there) {
    return told(
        [&] {
            const std::size_t size = g->sizes.at(static_cast<std::size_t>(i));
            g->buckets.ready(i, collx::contiguous_view<float>(there, size));
            return 0;
        },
        1);
}
int gradients_finish(gradients* g) {
    return told(
        [&] {
            g->buckets.finish();
            return 0;
        },
        1);
}
int gradients_buckets(gradients* g) { return static_cast<int>(g->buckets.buckets()); }
void gradients_close(gradients* g) { delete g; }
// After all of them.
void gradients_leave() { job.reset(); }
}
