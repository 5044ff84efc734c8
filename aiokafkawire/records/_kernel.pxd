# The widths and C helpers that the compiled kernel adds to _kernel.py.

cdef extern from *:
    """
    #ifndef AIOKAFKAWIRE_KERNEL_HASH
    #define AIOKAFKAWIRE_KERNEL_HASH ""
    #endif
    """
    const char* AIOKAFKAWIRE_KERNEL_HASH
