// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels for the tests of the software GPU's runtime: PTX in a fat binary, as nvcc embeds it. Also processes of the
// same test program, for actions that a process can take only once.
#pragma once

#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector_types.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
}

// As with nvcc's stubs, the address of each variable stands for a kernel.
inline char fill_words;     // (p, x): p[thread] = x
inline char await_word;     // (p, x): waits until *p == x; the host or another kernel writes it
inline char add_one;        // (p, -): ++p[thread]
inline char at_most_64;     // (p, x): does nothing; 64 threads at most
inline char count_launches; // (p, -): *p = ++variable of the module
inline char for_sm_80;      // (-, -): does nothing; the others are for sm_90

inline const char* const program_text = R"(
.version 9.0
.target sm_90
.address_size 64
.global .align 4 .u32 launches;
.visible .entry fill_words(.param .u64 p, .param .u64 x)
{
.reg .b32 %r<8>; .reg .b64 %d<8>;
ld.param.u64 %d0, [p]; ld.param.u64 %d1, [x];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
mad.lo.s32 %r3, %r1, %r2, %r0; mul.wide.u32 %d2, %r3, 4; add.s64 %d3, %d0, %d2;
cvt.u32.u64 %r4, %d1;
st.global.u32 [%d3], %r4;
ret;
}
.visible .entry await_word(.param .u64 p, .param .u64 x)
{
.reg .b32 %r<8>; .reg .b64 %d<8>; .reg .pred %p<2>;
ld.param.u64 %d0, [p]; ld.param.u64 %d1, [x];
cvt.u32.u64 %r0, %d1;
$again:
ld.volatile.global.u32 %r1, [%d0];
setp.ne.u32 %p0, %r1, %r0;
@%p0 bra $again;
ret;
}
.visible .entry add_one(.param .u64 p, .param .u64 x)
{
.reg .b32 %r<8>; .reg .b64 %d<8>;
ld.param.u64 %d0, [p];
mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d0, %d2;
ld.global.u32 %r1, [%d3]; add.s32 %r1, %r1, 1; st.global.u32 [%d3], %r1;
ret;
}
.visible .entry at_most_64(.param .u64 p, .param .u64 x)
.maxntid 64, 1, 1
{
ret;
}
.visible .entry count_launches(.param .u64 p, .param .u64 x)
{
.reg .b32 %r<8>; .reg .b64 %d<8>;
ld.param.u64 %d0, [p];
ld.global.u32 %r0, [launches]; add.s32 %r0, %r0, 1; st.global.u32 [launches], %r0;
st.global.u32 [%d0], %r0;
ret;
}
)";

inline const char* const old_text = R"(
.version 9.0
.target sm_80
.address_size 64
.visible .entry for_sm_80(.param .u64 p, .param .u64 x)
{
ret;
}
)";

using stub_list = std::vector<std::pair<char*, const char*>>;
// A fat binary and what the runtime is given to find it.
struct embedded {
    struct {
        int magic = 0x466243b1, version = 1;
        const void* data = nullptr;
        void* unused = nullptr;
    } wrapper;
    std::vector<char> data;
};
// What a translation unit does before main().
inline void register_program(const char* ptx, const stub_list& stubs, embedded& kept) {
    struct fat_header {
        std::uint32_t magic = 0xba55ed50;
        std::uint16_t version = 1, header = 16;
        std::uint64_t bytes = 0;
    };
    struct entry_header {
        std::uint16_t kind = 1, version = 0x101; // 1: PTX
        std::uint32_t header = 64;
        std::uint64_t bytes = 0, unused[6] = {};
    };
    static_assert(sizeof(fat_header) == 16 && sizeof(entry_header) == 64);
    const std::size_t text = std::strlen(ptx) + 1;
    std::vector<char>& data = kept.data;
    data.resize(80 + text);
    fat_header f;
    f.bytes = 64 + text;
    entry_header e;
    e.bytes = text;
    std::memcpy(data.data(), &f, 16);
    std::memcpy(data.data() + 16, &e, 64);
    std::memcpy(data.data() + 80, ptx, text);
    kept.wrapper.data = data.data();
    void** const home = __cudaRegisterFatBinary(&kept.wrapper);
    for (const auto& [stub, name] : stubs)
        __cudaRegisterFunction(home, stub, stub, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    __cudaRegisterFatBinaryEnd(home);
}
inline const bool is_registered = [] {
    static embedded kept[2];
    register_program(program_text,
                     {{&fill_words, "fill_words"},
                      {&await_word, "await_word"},
                      {&add_one, "add_one"},
                      {&at_most_64, "at_most_64"},
                      {&count_launches, "count_launches"}},
                     kept[0]);
    register_program(old_text, {{&for_sm_80, "for_sm_80"}}, kept[1]);
    return true;
}();

inline cudaError_t start(const char& kernel, void* p, std::uint64_t x = 0, unsigned threads = 1,
                         cudaStream_t s = nullptr, std::size_t shared = 0) {
    void* arguments[] = {&p, &x};
    return cudaLaunchKernel(&kernel, dim3(1), dim3(threads), arguments, shared, s);
}

// The output and the status of another process of this program that ran one test case.
struct ended {
    int status = -1;
    std::string text;
};
inline ended run_alone(const std::string& test_case, const std::string& environment = "") {
    char self[4096] = {};
    ended e;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return e;
    const std::string command = environment + " timeout 1800 '" + self + "' '" + test_case + "' 2>&1";
    std::FILE* const out = popen(command.c_str(), "r");
    if (out == nullptr) return e;
    char line[512];
    while (std::fgets(line, sizeof line, out) != nullptr) e.text += line;
    const int s = pclose(out);
    e.status = WIFEXITED(s) ? WEXITSTATUS(s) : -1;
    return e;
}

inline const int two_devices = setenv("SOFTWARE_GPUS", "2", 0);

#define OK(call) REQUIRE((call) == cudaSuccess)
// The call returns the error, and so does the next cudaGetLastError().
#define REFUSED(call, error)                  \
    do {                                      \
        CHECK((call) == (error));             \
        CHECK(cudaGetLastError() == (error)); \
    } while (false)

struct device_words {
    explicit device_words(std::size_t n) : count(n) { OK(cudaMalloc(&at, 4 * n)); }
    ~device_words() { cudaFree(at); }
    std::vector<std::uint32_t> read() const {
        std::vector<std::uint32_t> x(count);
        OK(cudaMemcpy(x.data(), at, 4 * count, cudaMemcpyDeviceToHost));
        return x;
    }
    operator void*() const { return at; }
    std::size_t count;
    void* at = nullptr;
};
// A host word that kernels wait for. Its destructor lets them continue, so that tests do not hang.
struct gate {
    gate() {
        void* p = nullptr;
        OK(cudaHostAlloc(&p, 4, cudaHostAllocMapped));
        word = static_cast<std::uint32_t*>(p);
        close();
    }
    ~gate() {
        open();
        cudaFreeHost(word);
    }
    void open() { __atomic_store_n(word, 1, __ATOMIC_RELEASE); }
    void close() { __atomic_store_n(word, 0, __ATOMIC_RELEASE); }
    std::uint32_t* word = nullptr;
};
struct any_stream {
    explicit any_stream(unsigned flags = cudaStreamNonBlocking) { OK(cudaStreamCreateWithFlags(&s, flags)); }
    ~any_stream() { cudaStreamDestroy(s); }
    operator cudaStream_t() const { return s; }
    cudaStream_t s = nullptr;
};
struct any_event {
    explicit any_event(unsigned flags = cudaEventDisableTiming) { OK(cudaEventCreateWithFlags(&e, flags)); }
    ~any_event() { cudaEventDestroy(e); }
    operator cudaEvent_t() const { return e; }
    cudaEvent_t e = nullptr;
};
inline void a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

// A fault while another kernel waits forever: both end, and the error stays.
inline void expect_sticky(void* where, cudaError_t expected) {
    gate g;
    any_stream s, other;
    OK(start(await_word, g.word, 1, 1, other));
    cudaError_t seen = cudaSuccess;
    std::thread waiting([&] { seen = cudaStreamSynchronize(other); }); // started before the fault
    a_little();
    const cudaError_t started = start(fill_words, where, 1, 1, s); // may return the fault already
    waiting.join();
    CHECK((started == cudaSuccess || started == expected));
    CHECK(seen == expected);
    CHECK(cudaStreamSynchronize(s) == expected);
    CHECK(cudaStreamSynchronize(other) == expected);
    CHECK(cudaGetLastError() == expected);
    CHECK(cudaGetLastError() == expected);
    void* p = nullptr;
    CHECK(cudaMalloc(&p, 4) == expected);
}
