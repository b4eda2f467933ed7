"""A Qdrant to be thrown away: the real gRPC protocol, before the in-memory engine of the official package.

usage: qdrant.py serve PORT | observe URL

Says where it listens (`serve`; port 0 is any that is free), then takes questions on stdin, one a line: to each it answers
with a line of JSON, all aliases and all points of all collections. It ends when stdin does.
"""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc as transport
from qdrant_client import QdrantClient, grpc
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc
from qdrant_client.http import models


class Engine:
    """The engine, one request at a time."""

    def __init__(self):
        self.client = QdrantClient(":memory:")
        self.lock = threading.RLock()


def taken(method):
    """Has a method done alone, and tells what goes wrong as Qdrant does."""

    def do(self, request, context):
        with self.engine.lock:
            try:
                return method(self, request)
            except ValueError as error:
                code = transport.StatusCode.NOT_FOUND if "not found" in str(error) else transport.StatusCode.INVALID_ARGUMENT
                context.abort(code, str(error))

    return do


def done():
    return grpc.PointsOperationResponse(result=grpc.UpdateResult(operation_id=0, status=grpc.UpdateStatus.Completed))


class Collections(grpc.CollectionsServicer):
    def __init__(self, engine):
        self.engine = engine

    @taken
    def CollectionExists(self, request):
        exists = self.engine.client.collection_exists(request.collection_name)
        return grpc.CollectionExistsResponse(result=grpc.CollectionExists(exists=exists))

    @taken
    def Create(self, request):
        vectors = GrpcToRest.convert_vectors_config(request.vectors_config)
        self.engine.client.create_collection(request.collection_name, vectors_config=vectors)
        return grpc.CollectionOperationResponse(result=True)

    @taken
    def UpdateAliases(self, request):
        for action in request.actions:
            assert action.WhichOneof("action") == "create_alias", "nobody asked for another yet"
            made = models.CreateAlias(
                collection_name=action.create_alias.collection_name, alias_name=action.create_alias.alias_name
            )
            self.engine.client.update_collection_aliases([models.CreateAliasOperation(create_alias=made)])
        return grpc.CollectionOperationResponse(result=True)


class Points(grpc.PointsServicer):
    def __init__(self, engine):
        self.engine = engine

    @taken
    def CreateFieldIndex(self, request):
        # Without an index the engine looks at everything, and finds the same.
        self.engine.client.get_collection(request.collection_name)
        return done()

    @taken
    def Upsert(self, request):
        points = [GrpcToRest.convert_point_struct(point) for point in request.points]
        self.engine.client.upsert(request.collection_name, points)
        return done()

    @taken
    def Delete(self, request):
        self.engine.client.delete(request.collection_name, GrpcToRest.convert_points_selector(request.points))
        return done()

    @taken
    def UpdateBatch(self, request):
        operations = [GrpcToRest.convert_points_update_operation(operation) for operation in request.operations]
        self.engine.client.batch_update_points(request.collection_name, operations)
        return grpc.UpdateBatchResponse(result=[done().result for _ in operations])

    @taken
    def Count(self, request):
        count = self.engine.client.count(request.collection_name, exact=True).count
        return grpc.CountResponse(result=grpc.CountResult(count=count))

    @taken
    def Scroll(self, request):
        offset = GrpcToRest.convert_point_id(request.offset) if request.HasField("offset") else None
        records, offset = self.engine.client.scroll(request.collection_name, limit=request.limit, offset=offset)
        response = grpc.ScrollResponse(result=[RestToGrpc.convert_record(record) for record in records])
        if offset is not None:
            response.next_page_offset.CopyFrom(RestToGrpc.convert_extended_point_id(offset))
        return response

    @taken
    def QueryBatch(self, request):
        return grpc.QueryBatchResponse(result=[self.nearest(query) for query in request.query_points])

    def nearest(self, query):
        found = self.engine.client.query_points(
            query.collection_name,
            query=GrpcToRest.convert_query(query.query),
            query_filter=GrpcToRest.convert_filter(query.filter) if query.HasField("filter") else None,
            limit=query.limit,
            with_payload=False,
        )
        return grpc.BatchResult(result=[RestToGrpc.convert_scored_point(point) for point in found.points])


def everything(client):
    collections = {}
    for collection in client.get_collections().collections:
        points, offset = {}, None
        while True:
            records, offset = client.scroll(collection.name, limit=1000, offset=offset)
            points.update((str(record.id), record.payload) for record in records)
            if offset is None:
                break
        collections[collection.name] = points
    aliases = {alias.alias_name: alias.collection_name for alias in client.get_aliases().aliases}
    return {"aliases": aliases, "collections": collections}


def say(what):
    print(json.dumps(what), flush=True)


def main():
    mode, where = sys.argv[1:]
    engine = Engine()
    if mode == "serve":
        server = transport.server(ThreadPoolExecutor(max_workers=4), options=[("grpc.so_reuseport", 0)])
        grpc.add_CollectionsServicer_to_server(Collections(engine), server)
        grpc.add_PointsServicer_to_server(Points(engine), server)
        port = server.add_insecure_port(f"127.0.0.1:{where}")
        server.start()
        say({"port": port})
    else:
        engine.client = QdrantClient(url=where, grpc_port=int(where.rsplit(":", 1)[1]), prefer_grpc=True)
        say({})
    for _ in sys.stdin:
        with engine.lock:
            say(everything(engine.client))


main()
