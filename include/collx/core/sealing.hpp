// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The place for a library that seals what travels: a component (interop/openssl.hpp) puts itself here. A seal tells
// whether bytes are those that the other end sent, all of them, once and in order; it may hide them too. Nothing here
// computes one, and nothing here knows sockets.
#pragma once

#include <cstddef>

#include <collx/core/authentication.hpp>
#include <collx/core/pointers.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Both directions of one connection. Each record has the number of those before it in its seal.
class sealer {
public:
    static constexpr std::size_t tag_bytes = 16;
    virtual ~sealer() = default;
    // Seals `bytes` of text together with a head that travels in the clear. The text is changed where it lies.
    virtual bool seal(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t bytes,
                      unsigned char* tag) = 0;
    // False, and nothing of the text may be used, unless this is the next record of the other end.
    virtual bool open(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t bytes,
                      const unsigned char* tag) = 0;
};
struct seal_component {
    const char* name;
    // session: known to the two ends of this connection only. hides: encrypt as well. Errors: unsupported.
    sole_ptr<sealer> (*make)(const secret& session, bool is_connecting, bool hides);
};
// Written by: the initialisation of a program that includes the component; read by: transports.
inline const seal_component* seals = nullptr;

} // namespace detail

COLLX_END_NAMESPACE
