# The widths of _kernel.py, and the functions that C needs in another way.
# Every read of a buffer is checked: by Cython, or where a pointer is taken, here.

cimport cython
from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject, PyTypeObject
from cpython.type cimport PyType_IsSubtype
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    static CYTHON_INLINE PyObject *aiokafkawire_blank(PyTypeObject *kind) {
        PyObject *arguments = PyTuple_New(0), *made = NULL;
        if (arguments) {
            made = kind->tp_new(kind, arguments, NULL);
            Py_DECREF(arguments);
        }
        /* As tuples of numbers do: hundreds of thousands may be held, all in few batches. */
        if (made && PyType_IS_GC(kind)) PyObject_GC_UnTrack(made);
        return made;
    }
    """
    const char* KERNEL_HASH "AIOKAFKAWIRE_KERNEL_HASH"
    object aiokafkawire_blank(PyTypeObject* kind)
    bint likely(bint condition)  # a macro of Cython; gcc inlines less in a block that seems rare

ctypedef int64_t* int64_p
ctypedef unsigned char* byte_p


cdef inline int64_t* numbers(array.array column, Py_ssize_t start, Py_ssize_t stop) except? NULL:
    """The numbers of an array("q") that has all indexes from `start` to `stop`."""
    if column is None or column.ob_descr.itemsize != 8 or start < 0 or stop > len(column):
        raise IndexError("out of the column's bounds")
    return <int64_t*>column.data.as_chars


cdef struct Pointers:
    int64_t* offsets
    int64_t* timestamps
    int64_t* key_start
    int64_t* key_length
    int64_t* value_start
    int64_t* value_length


cdef inline Pointers pointers(tuple arrays, Py_ssize_t start, Py_ssize_t stop) except *:
    """Return pointers into the arrays of `column_arrays`, which must outlive them."""
    cdef Pointers pointed
    pointed.offsets = numbers(arrays[0], start, stop)
    pointed.timestamps = numbers(arrays[1], start, stop)
    pointed.key_start = numbers(arrays[2], start, stop)
    pointed.key_length = numbers(arrays[3], start, stop)
    pointed.value_start = numbers(arrays[4], start, stop)
    pointed.value_length = numbers(arrays[5], start, stop)
    return pointed


cdef inline tuple column_arrays(columns):
    """Return all arrays of columns; holding the tuple keeps their memory alive."""
    return (
        columns.offsets, columns.timestamps, columns.key_start, columns.key_length,
        columns.value_start, columns.value_length,
    )


cdef inline uint32_t word(const unsigned char* data, Py_ssize_t at) noexcept:
    return data[at] | data[at + 1] << 8 | data[at + 2] << 16 | <uint32_t>data[at + 3] << 24


cdef inline uint32_t low(int64_t number) noexcept:
    return <uint32_t>number


cdef inline int32_t signed(uint32_t number) noexcept:
    return <int32_t>number


cdef struct Source:
    const unsigned char* data
    Py_ssize_t size


# Positions far below 0 say what is wrong; a byte more leaves them so.
cdef enum:
    PAST_THE_END = -0x10000000
    OVER_64_BITS = -0x10000100
    TOO_LONG = -0x10000200  # and less by 16 for each byte that was allowed


cdef inline Source whole(const unsigned char[::1] data) noexcept:
    cdef Source source
    source.size = data.shape[0]
    source.data = &data[0] if source.size else NULL
    return source


cdef inline (int64_t, int64_t) varint(
    Source source, int64_t position, int max_bytes
) noexcept:
    """As decode_varint, but return a negative position and a value of 0 on failure. A call with a
    negative position reads nothing, so `failed` raises the first failure."""
    cdef uint64_t raw = 0, byte
    cdef int shift = 0
    if position < 0:
        return 0, position
    if position < source.size and max_bytes > 0:
        byte = source.data[position]
        if byte < 128:  # as mostly
            return <int64_t>(byte >> 1) ^ -<int64_t>(byte & 1), position + 1
    while shift < 7 * max_bytes:
        if position >= source.size:
            return 0, PAST_THE_END
        byte = source.data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            if shift == 63 and byte > 1:
                return 0, OVER_64_BITS
            return <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1), position
        shift += 7
    return 0, TOO_LONG - 16 * max_bytes


cdef too_long(int max_bytes)


cdef inline int failed(int64_t position) except -1:
    if position >= PAST_THE_END:
        raise IndexError("index out of range")
    if position >= OVER_64_BITS:
        raise OverflowError("a varint takes more than 64 bits")
    raise too_long((TOO_LONG - position + 15) // 16)


cdef inline int check(Source source, int64_t at, int64_t size) except -1:
    if at < 0 or size < 0 or at > source.size or size > source.size - at:
        raise IndexError("index out of range")
    return 0


cdef inline object cut(Source source, int64_t at, int64_t size):
    if size < 0:
        return None
    check(source, at, size)
    return PyBytes_FromStringAndSize(<const char*>source.data + at, size)


cdef inline object text(Source source, int64_t at, int64_t size):
    check(source, at, size)
    return PyUnicode_DecodeUTF8(<const char*>source.data + at, size, "replace")


cdef inline int copy(Source out, int64_t to, Source source, int64_t at, int64_t size) except -1:
    check(source, at, size)
    check(out, to, size)
    if size:
        memcpy(<unsigned char*>out.data + to, source.data + at, size)
    return 0


cdef inline int varint_size(int64_t value) noexcept:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while raw > 127:
        raw >>= 7
        size += 1
    return size


cdef inline unsigned char* extend(bytearray out, Py_ssize_t used, Py_ssize_t size) except NULL:
    """Return the position for `size` more bytes; growing allocates twice the size needed."""
    if out is None or used < 0 or used > PyByteArray_GET_SIZE(out):
        raise IndexError("out of the body's bounds")
    if size > PyByteArray_GET_SIZE(out) - used:
        PyByteArray_Resize(out, 2 * (used + size))
    return <unsigned char*>PyByteArray_AS_STRING(out) + used


cdef inline bytes beginning(bytearray data, Py_ssize_t size):
    if data is None or size < 0 or size > PyByteArray_GET_SIZE(data):
        raise IndexError("out of the body's bounds")
    return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(data), size)


cdef inline unsigned char* put_varint(unsigned char* at, int64_t value) noexcept:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while raw > 127:
        at[0] = raw & 127 | 128
        at += 1
        raw >>= 7
    at[0] = <unsigned char>raw
    return at + 1


cdef inline unsigned char* put_bytes(unsigned char* at, bytes data, Py_ssize_t size) noexcept:
    if size > 0:
        memcpy(at, PyBytes_AS_STRING(data), size)
        at += size
    return at


cpdef bytes encode_varint(int64_t value)

@cython.locals(value=int64_t)
cpdef (int64_t, int64_t) decode_varint(
    const unsigned char[::1] data, int64_t position, int max_bytes=*
)

@cython.locals(key=bytes)
cpdef int32_t murmur2(data) except? -1

@cython.locals(hashed=uint32_t, mixed=uint32_t, at=Py_ssize_t)
cdef int32_t murmur2_hash(const unsigned char* data, Py_ssize_t size)

@cython.locals(
    data="const unsigned char[::1]", source=Source, fill=Pointers, index=Py_ssize_t, size=int64_t, delta=int64_t,
    end=int64_t, has_headers=bint, arrays=tuple,
)
cpdef int64_t decode_records(
    columns, Py_ssize_t start, Py_ssize_t stop, int64_t base_offset, int64_t base_timestamp,
    int64_t position, int64_t previous,
) except -1

@cython.locals(count=int64_t, size=int64_t)
cdef int64_t skip_headers(Source source, int64_t position, int64_t end) except -1

cpdef tuple decode_headers(const unsigned char[::1] data, int64_t position)

@cython.locals(count=int64_t, size=int64_t, headers=list)
cdef tuple headers_at(Source source, int64_t position)


cdef class Record:
    cdef public int64_t partition, offset, timestamp_ms, leader_epoch
    cdef public object topic, timestamp_type, key, value, headers


cdef class ShareRecord(Record):
    cdef public object _held


@cython.locals(
    data="const unsigned char[::1]", source=Source, pointed=Pointers, index=Py_ssize_t, at=int64_t, size=int64_t, has_headers=bint,
    record=Record, records=list, arrays=tuple,
)
cpdef list make_records(
    columns, Py_ssize_t start, Py_ssize_t stop, topic, int64_t partition, timestamp_type,
    int64_t leader_epoch, held=*,
)

@cython.locals(record=ShareRecord)
cdef Record acquired(held)

@cython.locals(index=Py_ssize_t, begins=int64_p, sizes=int64_p, source=Source)
cpdef list slices(
    const unsigned char[::1] data, starts, lengths, Py_ssize_t start, Py_ssize_t stop
)

@cython.locals(maximum=Py_ssize_t)
cpdef Py_ssize_t longest(column) except -2

@cython.locals(index=Py_ssize_t, result=int64_t, sizes=int64_p)
cpdef int64_t total(lengths, Py_ssize_t start, Py_ssize_t stop) except -1

@cython.locals(
    index=Py_ssize_t, size=int64_t, position=int64_t, begins=int64_p, sizes=int64_p,
    source=Source, target=Source,
)
cpdef int fill_binary(
    const unsigned char[::1] data, starts, lengths, Py_ssize_t start, Py_ssize_t stop,
    unsigned char[::1] out, int32_t[::1] ends, unsigned char[::1] valid, Py_ssize_t row,
) except -1


cdef class RecordHandle:
    cdef public object future
    cdef public int64_t index, timestamp_ms


cdef inline RecordHandle blank(type kind):
    if kind is None or not PyType_IsSubtype(kind, RecordHandle):
        raise TypeError("a delivery must be of a class derived from RecordHandle")
    return <RecordHandle?>aiokafkawire_blank(<PyTypeObject*>kind)


cdef class RecordBuffer:
    cdef bytearray _body
    cdef public int64_t base_timestamp, body_bytes, count, limit_bytes, max_timestamp
    cdef public bint is_full
    cdef public object future
    cdef public type handle_class

    @cython.locals(
        index=int64_t, used=int64_t, delta=int64_t, key_size=int64_t, value_size=int64_t,
        size=int64_t, whole_size=int64_t, at=byte_p,
    )
    cdef int64_t place(
        self, int64_t timestamp_ms, bytes key, bytes value, bytes headers
    ) except? -2

    @cython.locals(placed=RecordHandle, index=int64_t)
    cpdef put(self, int64_t timestamp_ms, key, value)

    @cython.locals(index=Py_ssize_t, plain=bint)
    cpdef Py_ssize_t put_many(
        self, int64_t timestamp_ms, keys, values, Py_ssize_t start, Py_ssize_t stop
    ) except? -1
