// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Maps names to instantiations: the only place that lists them.
#include "calls.hpp"

#include <stdexcept>

#include <collx/algo/algorithms.hpp>
#include <collx/core/half.hpp>
#include <collx/sched/traits.hpp>

namespace collx::tools::perf {

extern template std::unique_ptr<timed_calls> make_reducing_calls<std::int8_t>(const call_request&);
extern template std::unique_ptr<timed_calls> make_reducing_calls<std::uint8_t>(const call_request&);
extern template std::unique_ptr<timed_calls> make_reducing_calls<std::int32_t>(const call_request&);
extern template std::unique_ptr<timed_calls> make_reducing_calls<std::uint32_t>(const call_request&);
extern template std::unique_ptr<timed_calls> make_reducing_calls<std::int64_t>(const call_request&);
extern template std::unique_ptr<timed_calls> make_reducing_calls<std::uint64_t>(const call_request&);
extern template std::unique_ptr<timed_calls> make_reducing_calls<f16>(const call_request&);
extern template std::unique_ptr<timed_calls> make_reducing_calls<bf16>(const call_request&);
extern template std::unique_ptr<timed_calls> make_reducing_calls<float>(const call_request&);
extern template std::unique_ptr<timed_calls> make_reducing_calls<double>(const call_request&);
extern template std::unique_ptr<timed_calls> make_moving_calls<std::uint8_t>(const call_request&);
extern template std::unique_ptr<timed_calls> make_moving_calls<std::uint16_t>(const call_request&);
extern template std::unique_ptr<timed_calls> make_moving_calls<float>(const call_request&);
extern template std::unique_ptr<timed_calls> make_moving_calls<std::uint64_t>(const call_request&);

#ifdef COLLX_PERF_FLOAT_ONLY
std::unique_ptr<timed_calls> make_calls(element type, const call_request& r) {
    if (type != element::float32)
        throw std::invalid_argument("This collx_perf was built for float only (COLLX_PERF_FLOAT_ONLY); leave -d out.");
    return reduces(r.op) ? make_reducing_calls<float>(r) : make_moving_calls<float>(r);
}
#else
std::unique_ptr<timed_calls> make_calls(element type, const call_request& r) {
    if (!reduces(r.op)) {
        switch (bytes_of(type)) {
            case 1: return make_moving_calls<std::uint8_t>(r);
            case 2: return make_moving_calls<std::uint16_t>(r);
            case 4: return make_moving_calls<float>(r);
            default: return make_moving_calls<std::uint64_t>(r);
        }
    }
    switch (type) {
        case element::int8: return make_reducing_calls<std::int8_t>(r);
        case element::uint8: return make_reducing_calls<std::uint8_t>(r);
        case element::int32: return make_reducing_calls<std::int32_t>(r);
        case element::uint32: return make_reducing_calls<std::uint32_t>(r);
        case element::int64: return make_reducing_calls<std::int64_t>(r);
        case element::uint64: return make_reducing_calls<std::uint64_t>(r);
        case element::half: return make_reducing_calls<f16>(r);
        case element::bfloat16: return make_reducing_calls<bf16>(r);
        case element::float64: return make_reducing_calls<double>(r);
        default: return make_reducing_calls<float>(r);
    }
}
#endif

namespace {

// Calls add(algorithm) for each algorithm that implements `op`.
template <class F>
void for_each_algorithm(operation op, F&& add) {
    with_collective(op, [&]<collective C>() { algo::algorithms<C>::for_each(add); });
}

} // namespace

std::vector<std::string> algorithm_names(operation op) {
    std::vector<std::string> names;
    for_each_algorithm(op, [&](auto a) { names.emplace_back(a.name); });
    return names;
}

std::vector<std::string> usable_algorithms(operation op, bool in_memory, bool shared) {
    std::vector<std::string> names;
    for_each_algorithm(op, [&](auto a) {
        if (sched::signals_v<decltype(a)> != 0 && !in_memory) return;
        if (std::string(a.name) == "zero_copy" && !shared) return;
        names.emplace_back(a.name);
    });
    return names;
}

} // namespace collx::tools::perf
