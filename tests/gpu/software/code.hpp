// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The content of a module after its text was read: functions of decoded instructions. Brackets refer to the PTX ISA
// 9.0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "machine.hpp"

namespace software_gpu {

inline constexpr unsigned warp_size = 32;
using lanes = std::uint32_t; // a set of a warp's threads

// Types as opcodes name them. Registers are 64 bits wide here; narrower values have zeros above them.
enum class type : std::uint8_t {
    none,
    pred,
    b8,
    u8,
    s8,
    b16,
    u16,
    s16,
    b32,
    u32,
    s32,
    b64,
    u64,
    s64,
    f16,
    f16x2,
    bf16,
    bf16x2,
    f32,
    f64,
    e4m3x2,
    e5m2x2,
};
type type_of(std::string_view word);
std::size_t bytes_of(type);

// "ld.relaxed.sys.global.v2.u64": ld, and its words in order.
struct opcode {
    std::string text;
    std::vector<std::string_view> words; // views of `text`; the first is the instruction
    std::vector<type> types;             // the words that are types, in order
    explicit opcode(std::string_view);
    opcode(const opcode&) = delete;
    bool has(std::string_view word) const;
    std::string_view name() const { return words.front(); }
    type last_type() const { return types.empty() ? type::none : types.back(); }
};

// A register, or a constant.
struct source {
    int slot = -1; // index of the function's register; -1: constant
    bool negated = false;
    std::uint64_t constant = 0;
};

// [register + offset], [variable + offset].
struct place {
    enum class origin : std::uint8_t { absolute, kernel_parameters, frame, shared };
    origin from = origin::absolute;
    int slot = -1;
    std::int64_t offset = 0;
};

// Registers that the hardware sets [chapter 10].
enum class special : std::uint8_t {
    none,
    tid_x,
    tid_y,
    tid_z,
    ntid_x,
    ntid_y,
    ntid_z,
    ctaid_x,
    ctaid_y,
    ctaid_z,
    nctaid_x,
    nctaid_y,
    nctaid_z,
    laneid,
    warpid,
    nwarpid,
    smid,
    nsmid,
    lanemask_eq,
    lanemask_le,
    lanemask_lt,
    lanemask_ge,
    lanemask_gt,
    clock,
    globaltimer,
    dynamic_shared,
};
inline constexpr std::pair<std::string_view, special> special_names[] = {
    {"%tid.x", special::tid_x},
    {"%tid.y", special::tid_y},
    {"%tid.z", special::tid_z},
    {"%ntid.x", special::ntid_x},
    {"%ntid.y", special::ntid_y},
    {"%ntid.z", special::ntid_z},
    {"%ctaid.x", special::ctaid_x},
    {"%ctaid.y", special::ctaid_y},
    {"%ctaid.z", special::ctaid_z},
    {"%nctaid.x", special::nctaid_x},
    {"%nctaid.y", special::nctaid_y},
    {"%nctaid.z", special::nctaid_z},
    {"%laneid", special::laneid},
    {"%warpid", special::warpid},
    {"%nwarpid", special::nwarpid},
    {"%smid", special::smid},
    {"%nsmid", special::nsmid},
    {"%lanemask_eq", special::lanemask_eq},
    {"%lanemask_le", special::lanemask_le},
    {"%lanemask_lt", special::lanemask_lt},
    {"%lanemask_ge", special::lanemask_ge},
    {"%lanemask_gt", special::lanemask_gt},
    {"%clock", special::clock},
    {"%clock64", special::clock},
    {"%globaltimer", special::globaltimer},
    {"%dynamic_smem_size", special::dynamic_shared},
};

class warp;
struct instruction;
using handler = void (*)(warp&, const instruction&, lanes);

enum class flow : std::uint8_t { on, jump, call, back, end, meet_warp, meet_block, trap, sleep };

struct instruction {
    handler run = nullptr; // for flow::on, and for meet_warp once all threads have arrived
    flow next = flow::on;
    bool guarded = false, guard_negated = false;
    bool aligned = false, is_all = false; // of barriers
    int guard = -1;
    std::uint8_t tos = 0, froms = 0;
    std::array<int, 5> to{-1, -1, -1, -1, -1}; // -1: discarded
    std::array<source, 5> from{};
    place at;
    bool is_address = false; // the result is the address of `at`, not the value there
    special hardware = special::none;
    type kind = type::none, other = type::none; // last and first type in the opcode
    std::uint8_t count = 1;                     // of a vector
    std::uint32_t target = 0;                   // jump
    const function* callee = nullptr;           // call
    struct copied {                             // between the caller's frame and the callee's
        std::uint32_t here, there, bytes;
    };
    std::vector<copied> arguments, results;
    std::string text;
};

struct function {
    std::string name;
    const module* home = nullptr;
    std::uint32_t shared_bytes_of_module = 0;
    bool is_kernel = false;
    std::vector<instruction> code;
    std::uint32_t registers = 0;
    std::uint32_t stack_bytes = 0; // including the functions that it calls
    std::uint32_t frame_bytes = 0; // .param and .local variables of one thread
    struct variable {
        std::uint32_t offset, bytes;
    };
    std::vector<variable> parameters, results; // in its frame; a kernel's parameters: in the launch's
    kernel_facts facts;
    std::vector<std::string> calls;       // by name
    std::vector<std::size_t> shared_used; // indices into code_of_module::shared
};

struct shared_variable {
    std::string name;
    std::uint32_t offset = 0, bytes = 0;
    bool is_dynamic = false;
};
struct global_variable {
    std::unique_ptr<std::byte[]> storage;
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
};

struct code_of_module {
    std::map<std::string, std::unique_ptr<function>, std::less<>> functions;
    std::map<std::string, global_variable, std::less<>> globals;
    std::vector<shared_variable> shared;
    std::uint32_t shared_bytes = 0; // of all non-dynamic variables
};

// text.cpp: reads a translation unit. Throws fault (unsupported).
code_of_module read_module(std::string_view ptx);
// decode.cpp: sets the handler and the flow. An unknown instruction gets a handler that throws when it runs.
void decode(instruction&, const opcode&);

} // namespace software_gpu
