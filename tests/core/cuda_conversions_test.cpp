// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: needs=cuda
// The host's conversions compared with CUDA's own for the host (cuda_fp16.h, cuda_bf16.h, cuda_fp8.h), which define
// what the device's instructions give: all patterns of a narrow type, all places where rounding changes, and floats of
// all sizes. NaNs must match, but not their bits. tests/gpu/run.cu compares with the instructions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include <catch2/catch.hpp>

#include <collx/core/fp8.hpp>
#include <collx/core/half.hpp>

using namespace collx;

namespace {

struct f16_pair {
    using ours = f16;
    static constexpr unsigned patterns = 1u << 16;
    static float widen(unsigned b) { return __half2float(__half(__half_raw{static_cast<unsigned short>(b)})); }
    static unsigned narrow(float x) { return __half_raw(__float2half_rn(x)).x; }
};
struct bf16_pair {
    using ours = bf16;
    static constexpr unsigned patterns = 1u << 16;
    static float widen(unsigned b) {
        return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(b)}));
    }
    static unsigned narrow(float x) { return __nv_bfloat16_raw(__float2bfloat16_rn(x)).x; }
};
template <class Ours, __nv_fp8_interpretation_t Kind>
struct fp8_pair {
    using ours = Ours;
    static constexpr unsigned patterns = 1u << 8;
    static float widen(unsigned b) {
        return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(b), Kind)));
    }
    static unsigned narrow(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, Kind); }
};
using e4m3_pair = fp8_pair<e4m3, __NV_E4M3>;
using e5m2_pair = fp8_pair<e5m2, __NV_E5M2>;

template <class Pair>
int differs(float x) {
    using ours = typename Pair::ours;
    const unsigned mine = ours(x).bits, theirs = Pair::narrow(x);
    if (std::isnan(x)) return !std::isnan(float(ours(x))) + !std::isnan(Pair::widen(theirs));
    return mine != theirs;
}

} // namespace

TEMPLATE_TEST_CASE("the host converts as CUDA says that a device does", "", f16_pair, bf16_pair, e4m3_pair, e5m2_pair) {
    using ours = typename TestType::ours;
    const float inf = std::numeric_limits<float>::infinity();
    int wrong = 0, turns = 0;
    for (unsigned b = 0; b < TestType::patterns; ++b) {
        const float mine = ours::from_bits(static_cast<decltype(ours::bits)>(b)), theirs = TestType::widen(b);
        wrong += std::isnan(mine) ? !std::isnan(theirs) : std::memcmp(&mine, &theirs, sizeof mine) != 0;
        wrong += differs<TestType>(mine);
        const float next = ours::from_bits(static_cast<decltype(ours::bits)>(b + 1));
        if (!std::isfinite(mine) || !std::isfinite(next)) continue;
        const float middle = mine / 2 + next / 2;
        for (const float x : {std::nextafter(middle, -inf), middle, std::nextafter(middle, inf)}) {
            wrong += differs<TestType>(x);
            ++turns;
        }
    }
    CHECK(wrong == 0);
    CHECK(turns > 3 * 100);
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 2039) {
        const auto narrow = static_cast<std::uint32_t>(bits);
        float x;
        std::memcpy(&x, &narrow, sizeof x);
        wrong += differs<TestType>(x);
    }
    CHECK(wrong == 0);
    float two[2] = {1.25f, -3.5f};
    decltype(ours::bits) bits[2];
    ours::format::two_from_floats(bits, two[0], two[1]);
    CHECK((bits[0] == ours(1.25f).bits && bits[1] == ours(-3.5f).bits));
    if constexpr (is_fp8_v<ours>) {
        ours::format::floats_from_two(two, bits[1], bits[0]);
        CHECK((two[0] == -3.5f && two[1] == 1.25f));
    }
}
