/* A Python extension by the stable ABI, without Python's headers: `import spinner; spinner.spin(n)`. */
#include <stddef.h>
#include <stdint.h>

typedef struct object PyObject;
PyObject *PyModule_Create2(void *definition, int version);
PyObject *PyLong_FromLong(long value);
long PyLong_AsLong(PyObject *object);

volatile uint64_t extension_sink;

__attribute__((noinline)) void spin_in_c(long rounds)
{
    for (long i = 0; i < rounds; i++)
        extension_sink = extension_sink * 6364136223846793005u + 1;
}

static PyObject *spin(PyObject *module, PyObject *rounds)
{
    (void)module;
    spin_in_c(PyLong_AsLong(rounds));
    return PyLong_FromLong(7);
}

/* PyMethodDef and PyModuleDef as PEP 384 fixes them. */
static struct {
    const char *name;
    PyObject *(*function)(PyObject *, PyObject *);
    int flags;
    const char *documentation;
} methods[] = {{"spin", spin, 8 /* METH_O */, NULL}, {NULL, NULL, 0, NULL}};

static struct {
    intptr_t references;
    void *type, *init;
    intptr_t index;
    void *copy;
    const char *name, *documentation;
    intptr_t size;
    void *methods, *slots, *traverse, *clear, *free;
} definition = {1, NULL, NULL, 0, NULL, "spinner", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyObject *PyInit_spinner(void)
{
    return PyModule_Create2(&definition, 3);
}
