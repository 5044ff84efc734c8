"""Views."""

from __future__ import annotations

import json

from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Order, OutboxRecord


@csrf_exempt
@require_POST
async def create_order(request: HttpRequest) -> HttpResponse:
    """Store an order and the record about it in one transaction."""
    try:
        data = json.loads(request.body)
        customer, total = str(data["customer"]), int(data["total"])
    except (ValueError, TypeError, KeyError):
        return JsonResponse({"error": "expected customer and total"}, status=400)
    order = await store(customer, total)
    return JsonResponse({"id": order.id}, status=201)


@sync_to_async
def store(customer: str, total: int) -> Order:
    with transaction.atomic():
        order = Order.objects.create(customer=customer, total=total)
        value = json.dumps({"id": order.id, "customer": customer, "total": total})
        OutboxRecord.objects.create(topic="orders", key=customer.encode(), value=value.encode())
    return order
