// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tests of the software GPU itself, with kernels written in PTX.
#include <catch2/catch.hpp>

#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

#include "machine.hpp"

using namespace software_gpu;
using Catch::Matchers::Contains;

namespace {

class one_buffer : public memory {
public:
    explicit one_buffer(std::size_t words) : words_(words + 2 * gap, 0xabababab) {}
    std::uint32_t& operator[](std::size_t i) { return words_[gap + i]; }
    std::uint64_t at() const { return reinterpret_cast<std::uintptr_t>(words_.data() + gap); }
    bool holds(address a, std::size_t bytes) const override {
        return a >= at() && a + bytes <= at() + 4 * (words_.size() - 2 * gap);
    }
    std::vector<address> copies_of(address a, std::size_t bytes) const override {
        if (a < multicast || a + bytes > multicast + 4096) return {};
        return {at() + (a - multicast), at() + 256 + (a - multicast)};
    }
    static constexpr address multicast = 0x7000'0000'0000;

private:
    static constexpr std::size_t gap = 128; // so that a unit of 256 bytes is never inside by accident
    std::vector<std::uint32_t> words_;
};

std::string kernel(const std::string& body, const std::string& before = "") {
    return ".version 9.0\n.target sm_90\n.address_size 64\n" + before +
           ".visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)\n{\n"
           ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %d<16>; .reg .f32 %f<8>;\n"
           "ld.param.u64 %d0, [k_param_0]; ld.param.u64 %d1, [k_param_1];\n"
           "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;\n"
           "mad.lo.s32 %r3, %r1, %r2, %r0; mul.wide.u32 %d2, %r3, 4; add.s64 %d3, %d0, %d2;\n" +
           body + "\nret;\n}\n";
}

struct shape {
    unsigned blocks = 1, threads = 32;
    std::uint64_t seed = 0, argument = 0;
    bool cooperative = false;
};
void run(const std::string& text, one_buffer& m, shape s = {}) {
    const module code(text);
    launch l;
    l.kernel = code.kernel("k");
    REQUIRE(l.kernel != nullptr);
    l.grid.x = s.blocks;
    l.block.x = s.threads;
    l.seed = s.seed;
    l.cooperative = s.cooperative;
    l.resident = 2;
    const std::uint64_t parameters[] = {m.at(), s.argument};
    l.parameters.resize(sizeof parameters);
    std::memcpy(l.parameters.data(), parameters, sizeof parameters);
    const std::atomic<bool> stop{false};
    run(l, m, stop);
}
// The value of the 32-bit register %r10 (or %f0) in one thread, for given values of %r8 and %r9.
std::uint32_t result_of(const std::string& instructions, std::uint32_t a = 0, std::uint32_t b = 0) {
    one_buffer m(8);
    run(kernel("mov.b32 %r8, " + std::to_string(a) + "; mov.b32 %r9, " + std::to_string(b) + ";\n" + instructions +
               "\nst.global.u32 [%d3], %r10;"),
        m, {.threads = 1});
    return m[0];
}
std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

} // namespace

TEST_CASE("Whole numbers of a software GPU are the hardware's", "[software_gpu]") {
    CHECK(result_of("add.s32 %r10, %r8, %r9;", 0x7fffffff, 1) == 0x80000000);
    CHECK(result_of("div.s32 %r10, %r8, %r9;", static_cast<std::uint32_t>(-7), 2) == static_cast<std::uint32_t>(-3));
    CHECK(result_of("rem.s32 %r10, %r8, %r9;", static_cast<std::uint32_t>(-7), 2) == static_cast<std::uint32_t>(-1));
    CHECK(result_of("div.u32 %r10, %r8, %r9;", 7, 0) == 0xffffffff);
    CHECK(result_of("mul.hi.u32 %r10, %r8, %r9;", 0x80000000, 6) == 3);
    CHECK(result_of("shr.s32 %r10, %r8, 40;", 0x80000000) == 0xffffffff);
    CHECK(result_of("shl.b32 %r10, %r8, 32;", 1) == 0);
    CHECK(result_of("prmt.b32 %r10, %r8, %r9, 0x5410;", 0x33221100, 0x77665544) == 0x55441100);
    CHECK(result_of("prmt.b32 %r10, %r8, %r9, 0x000b;", 0x80000000, 0) == 0x000000ff);
    CHECK(result_of("bfi.b32 %r10, %r8, %r9, 8, 4;", 0xf5, 0xffffffff) == 0xfffff5ff);
    CHECK(result_of("bfe.s32 %r10, %r8, 4, 4;", 0x000000f0) == 0xffffffff);
    CHECK(result_of("lop3.b32 %r10, %r8, %r9, 0, 0x3c;", 0b1100, 0b1010) == 0b0110); // a ^ b
    CHECK(result_of("brev.b32 %r10, %r8;", 1) == 0x80000000);
    CHECK(result_of("bmsk.clamp.b32 %r10, %r8, %r9;", 4, 3) == 0x70);
    CHECK(result_of("mov.b32 {%h0, %h1}, %r8; mov.b32 %r10, {%h1, %h0};", 0x12345678) == 0x56781234);
    CHECK(result_of("cvt.u16.u32 %h0, %r8; cvt.s32.s16 %r10, %h0;", 0x0001ffff) == 0xffffffff);
    CHECK(result_of("setp.lt.s32 %p0, %r8, %r9; selp.b32 %r10, 1, 2, %p0;", static_cast<std::uint32_t>(-1), 0) == 1);
    CHECK(result_of("setp.lt.u32 %p0, %r8, %r9; selp.b32 %r10, 1, 2, %p0;", static_cast<std::uint32_t>(-1), 0) == 2);
}

TEST_CASE("Floats of a software GPU, narrow ones too, are the hardware's", "[software_gpu]") {
    const auto of = [](const char* instructions, float a, float b = 0) {
        return result_of("mov.b32 %f1, %r8; mov.b32 %f2, %r9;\n" + std::string(instructions), bits(a), bits(b));
    };
    const float nan = std::bit_cast<float>(0x7fc00000);
    CHECK(of("add.f32 %f0, %f1, %f2; mov.b32 %r10, %f0;", 1.5f, 2.25f) == bits(3.75f));
    CHECK(of("max.f32 %f0, %f1, %f2; mov.b32 %r10, %f0;", nan, 1.0f) == bits(1.0f));
    CHECK(of("max.NaN.f32 %f0, %f1, %f2; mov.b32 %r10, %f0;", nan, 1.0f) == bits(nan));
    CHECK(of("min.f32 %f0, %f1, %f2; mov.b32 %r10, %f0;", 0.0f, -0.0f) == bits(-0.0f));
    CHECK(of("setp.ne.f32 %p0, %f1, %f1; selp.b32 %r10, 1, 0, %p0;", nan) == 0);
    CHECK(of("setp.neu.f32 %p0, %f1, %f1; selp.b32 %r10, 1, 0, %p0;", nan) == 1);
    CHECK(of("cvt.rzi.s32.f32 %r10, %f1;", -2.75f) == static_cast<std::uint32_t>(-2));
    CHECK(of("cvt.rzi.s32.f32 %r10, %f1;", 3e10f) == 0x7fffffff);
    CHECK(of("cvt.rn.bf16x2.f32 %r10, %f1, %f2;", 1.0f, 2.0f) == 0x3f804000); // the first goes to the upper half
    CHECK(of("cvt.rn.f16x2.f32 %r10, %f1, %f2;", 1.0f, 2.0f) == 0x3c004000);
    CHECK(of("cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f2; mov.b32 %r10, {%h0, %h0};", 1e9f, 1.0f) == 0x7e387e38);
    CHECK(of("cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f2; cvt.rn.f16x2.e4m3x2 %r10, %h0;", 2.0f, -1.0f) == 0x4000bc00);
    CHECK(of("cvt.rn.f16.f32 %h0, %f1; cvt.f32.f16 %f0, %h0; mov.b32 %r10, %f0;", 0.333251953125f) ==
          bits(0.333251953125f));
}

TEST_CASE("Threads of a warp part and meet again", "[software_gpu]") {
    // Odd threads loop as often as their number says, even ones do not loop; then all vote and exchange.
    const std::string text = kernel("mov.u32 %r4, 0; and.b32 %r5, %r0, 1; setp.eq.s32 %p0, %r5, 0;\n"
                                    "@%p0 bra DONE;\n"
                                    "MORE: add.s32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r0; @%p1 bra MORE;\n"
                                    "DONE: shfl.sync.bfly.b32 %r6|%p2, %r4, 1, 31, -1;\n"
                                    "vote.sync.ballot.b32 %r7, %p0, -1; add.s32 %r6, %r6, %r7;\n"
                                    "st.global.u32 [%d3], %r6;");
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        one_buffer m(64);
        run(text, m, {.threads = 64, .seed = seed});
        for (unsigned i = 0; i < 64; ++i) {
            const unsigned neighbour = i ^ 1;
            CHECK(m[i] == 0x55555555u + (neighbour % 2 != 0 ? neighbour : 0));
        }
    }
}

TEST_CASE("A thread may wait in a loop for another of its warp", "[software_gpu]") {
    const std::string text =
        kernel("setp.eq.s32 %p0, %r0, 31; @%p0 bra GIVE;\n"
               "WAIT: ld.relaxed.sys.global.u32 %r4, [%d0+128]; setp.ne.s32 %p1, %r4, 7; @%p1 bra WAIT;\n"
               "bra.uni DONE;\n"
               "GIVE: mov.u32 %r4, 7; st.relaxed.sys.global.u32 [%d0+128], %r4;\n"
               "DONE: st.global.u32 [%d3], %r4;");
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        one_buffer m(33);
        run(text, m, {.seed = seed});
        for (unsigned i = 0; i < 32; ++i) CHECK(m[i] == 7);
    }
}

TEST_CASE("Blocks meet at barriers, groups of their warps at counted ones, and memory is theirs", "[software_gpu]") {
    const std::string text =
        kernel("mov.u32 %r4, shares; shl.b32 %r5, %r0, 2; add.s32 %r6, %r4, %r5; st.shared.u32 [%r6], %r3;\n"
               "bar.sync 0;\n"
               "xor.b32 %r7, %r5, 508; add.s32 %r7, %r4, %r7; ld.shared.u32 %r8, [%r7];\n"
               "shr.u32 %r9, %r0, 6; add.s32 %r9, %r9, 1; mov.u32 %r10, 64;\n"
               "setp.eq.s32 %p0, %r0, 70; barrier.cta.red.or.pred %p1, %r9, %r10, %p0;\n"
               "selp.b32 %r11, 1000, 0, %p1; add.s32 %r8, %r8, %r11; st.global.u32 [%d3], %r8;",
               ".shared .align 4 .b8 shares[512];\n");
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        one_buffer m(512);
        run(text, m, {.blocks = 4, .threads = 128, .seed = seed, .cooperative = true});
        for (unsigned i = 0; i < 512; ++i) {
            const unsigned block = i / 128, thread = i % 128;
            CHECK(m[i] == block * 128 + (127 - thread) + (thread >= 64 ? 1000 : 0));
        }
    }
}

TEST_CASE("Functions have registers and parameters of their own, also in a part of a warp", "[software_gpu]") {
    const std::string sum = ".func (.param .b32 result) sum(.param .b32 n)\n{\n"
                            ".reg .pred %p<2>; .reg .b32 %r<4>;\n"
                            "ld.param.b32 %r0, [n]; mov.u32 %r1, 0; setp.eq.s32 %p0, %r0, 0; @%p0 bra END;\n"
                            "sub.s32 %r2, %r0, 1;\n"
                            "{ .param .b32 given; st.param.b32 [given], %r2; .param .b32 back;\n"
                            "call (back), sum, (given); ld.param.b32 %r1, [back]; }\n"
                            "END: add.s32 %r1, %r1, %r0; st.param.b32 [result], %r1; ret;\n}\n";
    const std::string text = kernel("mov.u32 %r4, 5; and.b32 %r5, %r0, 3; setp.eq.s32 %p0, %r5, 3; @%p0 bra DONE;\n"
                                    "{ .param .b32 given; st.param.b32 [given], %r0; .param .b32 back;\n"
                                    "call (back), sum, (given); ld.param.b32 %r4, [back]; }\n"
                                    "DONE: st.global.u32 [%d3], %r4;",
                                    sum);
    one_buffer m(32);
    run(text, m);
    for (unsigned i = 0; i < 32; ++i) CHECK(m[i] == (i % 4 == 3 ? 5 : i * (i + 1) / 2));
}

TEST_CASE("Atomics of all threads come together, and vectors keep their order", "[software_gpu]") {
    one_buffer m(16);
    for (unsigned i = 0; i < 16; ++i) m[i] = i;
    run(kernel("atom.global.add.u32 %r4, [%d0+32], 3; red.global.max.u32 [%d0+36], %r3;\n"
               "setp.ne.s32 %p0, %r3, 0; @%p0 ret;\n"
               "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d0]; st.global.v2.u32 [%d0+16], {%r7, %r4};"),
        m, {.blocks = 5, .threads = 64});
    CHECK(m[8] == 8 + 3 * 5 * 64);
    CHECK(m[9] == 5 * 64 - 1);
    CHECK(m[4] == 3);
    CHECK(m[5] == 0);
}

TEST_CASE("A switch reduces over copies and stores to all of them", "[software_gpu]") {
    one_buffer m(128);
    for (unsigned i = 0; i < 4; ++i) {
        m[i] = bits(1.0f + static_cast<float>(i));
        m[64 + i] = bits(10.0f);
    }
    run(kernel("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%f0, %f1, %f2, %f3}, [%d1];\n"
               "multimem.st.relaxed.sys.global.v4.f32 [%d1+16], {%f3, %f2, %f1, %f0};"),
        m, {.threads = 1, .argument = one_buffer::multicast});
    for (const std::size_t copy : {0u, 64u})
        for (unsigned i = 0; i < 4; ++i) CHECK(m[copy + 4 + i] == bits(11.0f + static_cast<float>(3 - i)));
}

TEST_CASE("What a kernel must not do ends its launch and is named", "[software_gpu]") {
    one_buffer m(64);
    const auto said = [&](const std::string& body, shape s, fault::kind why) {
        try {
            run(kernel(body), m, s);
        } catch (const fault& f) {
            CHECK(f.why == why);
            return std::string(f.what());
        }
        return std::string("nothing");
    };
    using enum fault::kind;
    const std::string outside = said("ld.global.u32 %r4, [%d3+4];", {.threads = 64}, illegal_address);
    CHECK_THAT(outside, Contains("thread 63,0,0 of block 0,0,0") && Contains("ld.global.u32 %r4"));
    CHECK_THAT(said("st.global.u32 [%d0+2], %r3;", {.threads = 1}, misaligned_address), Contains("multiple of 4"));
    CHECK_THAT(said("ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%d0+8];", {.threads = 1}, misaligned_address),
               Contains("multiple of 16"));
    CHECK_THAT(said("st.shared.u32 [%r0+4096], %r3;", {.threads = 1}, illegal_address), Contains("shared memory"));
    CHECK_THAT(said("trap;", {.threads = 1}, trap), Contains("trap"));
    CHECK_THAT(said("setp.lt.u32 %p0, %r0, 32; @%p0 bra.uni ON; bar.sync 1, 64; ON: mov.u32 %r4, 0;", {.threads = 64},
                    barrier),
               Contains("never come"));
    CHECK_THAT(
        said("and.b32 %r4, %r0, 1; setp.eq.s32 %p0, %r4, 0; @%p0 bra A; bar.sync 0; bra.uni B; A: bar.sync 0; B: ;",
             {.threads = 64}, barrier),
        Contains("not at the barrier"));
    CHECK_THAT(said("setp.ne.s32 %p0, %r0, 0; @%p0 ret; bar.warp.sync 3;", {}, barrier), Contains("ended"));
    CHECK_THAT(said("shfl.sync.idx.b32 %r4, %r3, 0, 31, 1;", {.threads = 2}, barrier), Contains("name itself"));
    CHECK_THAT(said("cvt.rn.tf32x9.f32 %r4, %f0;", {.threads = 1}, unsupported), Contains("no such instruction"));
    CHECK_THROWS_AS(module(".version 9.0\n.entry k() { mov.u32 %none, 1; }"), fault);
}
